"""What the policy is asked to do. ``catalogue.draw`` makes a task from a mix and a random generator."""

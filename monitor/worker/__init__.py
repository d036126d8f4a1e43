"""The worker: judges what has arrived and sends what is due.

Judging is one transaction per run: claim, load, fold, write transitions with their deliveries and the cursor, commit. Sending happens outside
any transaction. Any number of workers run side by side; each may die at any moment.
"""

from __future__ import annotations

import asyncio
import signal

from monitor.alerts.rules import Rules, RulesError, parse
from monitor.deliver.channel import Channel, ChannelError
from monitor.deliver.slack import Slack
from monitor.deliver.webhook import Webhook
from monitor.settings import Settings, SettingsError
from monitor.store import embedded
from monitor.store.database import create_engine, require_current
from monitor.worker.loop import Worker
from monitor.worker.pace import Pace
from monitor.worker.sending import compose

__all__ = ["Pace", "Worker", "channels", "compose", "rules", "run"]


def channels(settings: Settings) -> list[Channel]:
    """The channels that the settings name. Raises SettingsError for one that is wrongly set up."""
    private, found = settings.allow_private_webhooks, list[Channel]()
    try:
        if settings.slack_webhook_url is not None:
            found.append(Slack("slack", settings.slack_webhook_url.get_secret_value(), private=private))
        if settings.webhook_url is not None:
            secret = settings.webhook_secret.get_secret_value() if settings.webhook_secret is not None else None
            found.append(Webhook("webhook", settings.webhook_url.get_secret_value(), secret, private=private))
    except ChannelError as error:
        names = {"slack": "VITALS_SLACK_WEBHOOK_URL", "webhook": "VITALS_WEBHOOK_URL or VITALS_WEBHOOK_SECRET"}
        raise SettingsError(f"{names['webhook' if found or settings.slack_webhook_url is None else 'slack']}: {error}.") from None
    return found


def rules(settings: Settings) -> Rules:
    """The rules file that the settings name. Raises SettingsError with one line per problem."""
    if settings.rules is None:
        return Rules()
    try:
        return parse(settings.rules.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"VITALS_RULES: {settings.rules} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    except RulesError as error:
        raise SettingsError("\n".join(f"VITALS_RULES: {settings.rules}, {problem}" for problem in error.problems)) from None


async def run(settings: Settings, *, pace: Pace = Pace()) -> None:
    """Works until SIGTERM or SIGINT. Raises SettingsError for a wrong setting and DatabaseError for an unusable database."""
    url = embedded.cluster(settings.data_dir).url if settings.database_url is None else settings.database_url.get_secret_value()
    carriers, ruled = channels(settings), rules(settings)
    engine = create_engine(url, pool_size=len(carriers) + 4, application="rlvitals worker")
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await require_current(engine)
        await Worker(engine, carriers, routes=ruled.routes, link=settings.url, pace=pace, rules=ruled).run(stop)
    finally:
        await engine.dispose()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

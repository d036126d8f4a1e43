"""An e-mail is well-formed whatever a letter holds, and nothing in it can forge a header or markup."""

from __future__ import annotations

import email
from email.headerregistry import Address
from email.policy import default

import aiosmtplib
import pytest
from hypothesis import given, settings
from letters import letters, message

from monitor.deliver.channel import ChannelError, MessageRefused
from monitor.deliver.mail import MAX_SUBJECT, Mail, html, meaning, write

ME, YOU = Address(addr_spec="rlvitals@example.org"), Address(addr_spec="ada@example.org")


@settings(max_examples=200, deadline=None)
@given(letters)
def test_any_letter_is_a_well_formed_mail(letter):
    raw = write(letter, ME, [YOU]).as_bytes()
    assert all(len(line) <= 998 for line in raw.split(b"\r\n")) and b"\r" not in raw.replace(b"\r\n", b"") and b"\x00" not in raw
    read = email.message_from_bytes(raw, policy=default)
    assert [part.get_content_type() for part in read.iter_parts()] == ["text/plain", "text/html"]
    assert not read.defects and read["From"] == "rlvitals@example.org" and read["To"] == "ada@example.org"
    assert read["Message-ID"] == f"<{letter.uid}@example.org>" and len(read["Subject"]) <= MAX_SUBJECT
    assert set(read.keys()) <= {
        "From", "To", "Subject", "Date", "Message-ID", "References", "In-Reply-To", "Auto-Submitted", "MIME-Version", "Content-Type",
    }  # fmt: skip


@pytest.mark.parametrize("length", range(0, 120, 3))
def test_a_subject_of_any_length_is_read_as_it_was_written(length):
    written = write(message(run_name="n" * length), ME, [YOU])
    assert email.message_from_bytes(written.as_bytes(), policy=default)["Subject"] == message(run_name="n" * length).summary


def test_nothing_in_a_letter_becomes_markup_or_a_header():
    evil = message(
        run_name="x\r\nBcc: all@example.org",
        verdict='<img src=x onerror="a()"> & co',
        link='http://h/"><script>',
        incident_link="http://h/incident/<b>",
    )
    page = html(evil)
    assert "<img" not in page and "<script" not in page and "&lt;img" in page and "&#34;&gt;&lt;script&gt;" in page
    written = write(evil, ME, [YOU])
    assert written["Bcc"] is None and "x Bcc: all@example.org" in written["Subject"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sender": "nobody"}, "from"),
        ({"sender": "a@b\nBcc: c@d"}, "from"),
        ({"sender": "ü@example.org"}, "from"),
        ({"recipients": ["ada@example.org", "bob"]}, "to"),
        ({"port": 0}, "port"),
        ({"host": "localhost"}, "VITALS_ALLOW_PRIVATE_WEBHOOKS"),
        ({"host": "10.1.2.3"}, "VITALS_ALLOW_PRIVATE_WEBHOOKS"),
        ({"username": "me"}, "username"),
        ({"username": "me", "password": "HUSH", "tls": "none"}, "in the clear"),
    ],
)
def test_wrong_settings_are_said(changes, named):
    facts = {"name": "mail", "host": "smtp.example.org", "sender": "rlvitals@example.org", "recipients": ["ada@example.org"], **changes}
    with pytest.raises(ChannelError, match=named) as caught:
        Mail(**facts)
    assert "HUSH" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "permanent", "refused"),
    [
        (aiosmtplib.SMTPDataError(451, "later"), False, False),
        (aiosmtplib.SMTPDataError(554, "spam"), True, True),
        (aiosmtplib.SMTPSenderRefused(450, "later", "x"), False, False),
        (aiosmtplib.SMTPSenderRefused(550, "never", "x"), True, False),
        (aiosmtplib.SMTPAuthenticationError(454, "later"), False, False),
        (aiosmtplib.SMTPAuthenticationError(535, "wrong"), True, False),
        (aiosmtplib.SMTPConnectResponseError(421, "busy"), False, False),
        (
            aiosmtplib.SMTPRecipientsRefused([aiosmtplib.SMTPRecipientRefused(550, "no", "a"), aiosmtplib.SMTPRecipientRefused(452, "full", "b")]),
            False,
            False,
        ),
        (aiosmtplib.SMTPRecipientsRefused([aiosmtplib.SMTPRecipientRefused(550, "no", "a")]), True, False),
        (aiosmtplib.SMTPServerDisconnected("gone"), False, False),
        (ConnectionRefusedError(111, "refused"), False, False),
    ],
)
def test_what_a_server_says_is_understood(error, permanent, refused):
    found = meaning("host", error)
    assert found.permanent is permanent and isinstance(found, MessageRefused) is refused and "host" in str(found)

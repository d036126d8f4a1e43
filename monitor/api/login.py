"""The page that asks for the token. It stands alone: whoever is not logged in gets nothing else from the server."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from starlette.responses import HTMLResponse


def login_page(target: str, *, wrong: bool) -> HTMLResponse:
    """The form that leads to ``target``; ``wrong`` says that the last answer was not the token."""
    complaint = '<p role="alert">That is not the token of this collector.</p>' if wrong else ""
    page = _PAGE.replace("ACTION", escape(f"/login?next={quote(target)}")).replace("COMPLAINT", complaint)
    return HTMLResponse(page, 401 if wrong else 200, {"Cache-Control": "no-store"})


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>rlvitals: log in</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { min-height: 100vh; margin: 0; display: grid; place-items: center; }
body { background: light-dark(#f6f7f9, #14161a); color: light-dark(#1b1f24, #e6e8eb); }
form { width: min(22rem, 82vw); padding: 2rem; border-radius: 12px; }
form { background: light-dark(#fff, #1d2025); border: 1px solid light-dark(#dfe3e8, #30353c); }
h1 { margin: 0 0 1rem; font-size: 1.25rem; }
label { display: block; margin-bottom: .35rem; }
input, button { box-sizing: border-box; width: 100%; padding: .6rem .75rem; font: inherit; border-radius: 8px; }
input { border: 1px solid light-dark(#8a939e, #6b7480); }
button { margin-top: 1rem; border: 0; background: #1f5fbf; color: #fff; cursor: pointer; }
p { color: light-dark(#a4161a, #ff8a8a); }
</style>
</head>
<body>
<main>
<form method="post" action="ACTION">
<h1>rlvitals</h1>
COMPLAINT
<label for="token">Access token (VITALS_TOKEN)</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Log in</button>
</form>
</main>
</body>
</html>
"""

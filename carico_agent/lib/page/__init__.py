"""The page for people: static files, the rules under which they are served, and a proxy to an agent's socket.

It only reads. The agent serves it where `[page] listen` says so (publish/publishers/page.py), `carico page` serves it
for one user. The browser's side is plain JavaScript in `static/`, without a build step.
"""

"""The lab's web server: a directory as it is, and the pages of a package index as JSON to who asks for that (PEP 691).

Arguments: the directory, the address to listen on, the port. A directory of the first level that holds ``.gone`` is out
of order. What is hidden is not served.
"""

from __future__ import annotations

import sys
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

JSON = "application/vnd.pypi.simple.v1+json"
PAGE = "index.v1.json"


class Handler(SimpleHTTPRequestHandler):
    """Serves the requests of a connection; uv makes some hundred for an environment."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # headers and a small file in one packet
    disable_nagle_algorithm = True

    def send_head(self) -> BinaryIO | None:
        """What a request is answered with."""
        parts = [part for part in unquote(urlsplit(self.path).path).split("/") if part]
        # apt asks for ./PACKAGE in a repository without suites; the base class never leaves the directory.
        if any(part.startswith(".") and part not in {".", ".."} for part in parts):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        if parts and (Path(self.directory) / parts[0] / ".gone").exists():
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
            return None
        if self.path.endswith("/") and JSON in self.headers.get("Accept", ""):
            page = Path(self.directory, *parts, PAGE)
            if page.is_file():
                return self.send_json(page)
        return super().send_head()

    def send_json(self, page: Path) -> BinaryIO:
        """The page of an index."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", JSON)
        self.send_header("Content-Length", str(page.stat().st_size))
        self.send_header("Vary", "Accept")
        self.end_headers()
        return page.open("rb")


def server(directory: str, address: str, port: int) -> ThreadingHTTPServer:
    """One that listens; ``serve_forever`` lets it answer."""
    return ThreadingHTTPServer((address, port), partial(Handler, directory=directory))


if __name__ == "__main__":
    server(sys.argv[1], sys.argv[2], int(sys.argv[3])).serve_forever()

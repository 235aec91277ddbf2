"""ClickHouse for tests: the engine itself (chdb) behind the parts of ClickHouse's HTTP interface that its clients use.

    clickhouse.py --path DIR [--port 0] [--certificate FILE] [--password PASSWORD]

Prints the port once it is ready. With --certificate, a PEM file of a key and its certificate, the server requires TLS.
With --password, it refuses requests without that password. The query is in `?query=` or in the body; the data of an
INSERT follow it in the body. `database`, `default_format`, `param_*` and settings are in the URL. User names are
ignored, except that the user `insert_only` may not create, alter or drop anything, as if it lacked the rights. An error
has the server's status and `X-ClickHouse-Exception-Code`. Compression is not supported.

A single thread uses the engine, so statements run one after another. An INSERT runs once its whole body has arrived,
so a client that disconnects early inserts nothing.
"""

import argparse
import queue
import re
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from chdb.session import Session

BODY_BYTES_MAX = 1 << 30
APPEND_BYTES = 1 << 20

# URL parameters that are not settings.
NOT_SETTINGS = {"query", "database", "default_format", "user", "password", "query_id", "session_id", "compress",
                "decompress", "enable_http_compression", "role", "wait_end_of_query"}

# From ClickHouse's exceptionCodeToHTTPStatus; all other codes map to 500.
STATUSES = {62: 400, 6: 400, 26: 400, 27: 400, 33: 400, 41: 400, 43: 400, 53: 400, 70: 400, 117: 400, 36: 400, 42: 400,
            46: 404, 47: 404, 60: 404, 81: 404, 16: 404, 115: 404, 158: 507, 241: 500, 159: 408, 164: 500, 192: 403,
            193: 403, 194: 401, 497: 403, 516: 403}

INSERT = re.compile(r"\s*INSERT\s+INTO\b", re.IGNORECASE)
INSERT_FORMAT = re.compile(r"\s+FORMAT\s+(\w+)\s*$", re.IGNORECASE)
MANAGE = re.compile(r"\s*(CREATE|ALTER|DROP)\b", re.IGNORECASE)
SELECT = re.compile(r"\s*(SELECT|WITH)\b", re.IGNORECASE)
FORMAT_AT_END = re.compile(r"\bFORMAT\s+\w+\s*$", re.IGNORECASE)


class Engine:
    """The engine and the only thread that may use it."""

    def __init__(self, path):
        self.jobs = queue.Queue(maxsize=64)
        threading.Thread(target=self.run, args=(path,), daemon=True).start()

    def run(self, path):
        session = Session(path)
        database = "default"
        while True:
            wanted, work, answer = self.jobs.get()
            try:
                if wanted != database:
                    session.query(f"USE `{wanted}`")
                    database = wanted
                answer.put((work(session), None))
            except Exception as error:
                answer.put((None, str(error)))

    def do(self, database, work):
        answer = queue.Queue()
        self.jobs.put((database, work, answer))
        return answer.get()


def literal(value):
    return value if re.fullmatch(r"\d+", value) else "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def insert(statement, format_name, settings, body):
    """Returns a job that runs an INSERT with its data in the request body."""
    if settings:
        statement += " SETTINGS " + ", ".join(f"{name} = {literal(value)}" for name, value in settings.items())

    def work(session):
        if not body:
            return b""
        with session.send_insert(statement, format_name) as rows:
            for start in range(0, len(body), APPEND_BYTES):
                rows.append(body[start:start + APPEND_BYTES])
            rows.finish()
        return b""
    return work


def select(statement, format_name, settings, params):
    """Returns a job that runs any other statement."""
    if settings and SELECT.match(statement):
        tail = FORMAT_AT_END.search(statement)
        end = tail.start() if tail else len(statement)
        named = ", ".join(f"{name} = {literal(value)}" for name, value in settings.items())
        statement = f"{statement[:end]} SETTINGS {named} {statement[end:]}"
    return lambda session: session.query(statement, format_name, params=params or None).bytes()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.exactly(int(self.headers.get("Content-Length") or 0))
        pieces, total = [], 0
        while size := int(self.rfile.readline().split(b";")[0], 16):
            total += size
            if total > BODY_BYTES_MAX:
                raise ValueError("body too large")
            pieces.append(self.exactly(size))
            self.exactly(2)
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

    def exactly(self, size):
        data = self.rfile.read(size)
        if len(data) < size:
            raise ConnectionError("the client disconnected")
        return data

    def do_GET(self):
        try:
            body = self.body()
        except (ConnectionError, ValueError):
            self.close_connection = True
            return
        url = urlsplit(self.path)
        if url.path == "/ping":
            return self.answer(200, b"Ok.\n")
        named = dict(parse_qsl(url.query, keep_blank_values=True))
        settings = {name: value for name, value in named.items()
                    if name not in NOT_SETTINGS and not name.startswith("param_")}
        params = {name[6:]: value for name, value in named.items() if name.startswith("param_")}
        query = named.get("query", "")
        if self.server.password not in (None, self.headers.get("X-ClickHouse-Key")):
            return self.refuse("Code: 516. DB::Exception: Authentication failed: password is incorrect, or there is no "
                               "user with such name. (AUTHENTICATION_FAILED)")
        if self.headers.get("X-ClickHouse-User") == "insert_only" and MANAGE.match(query or body.decode()):
            return self.refuse("Code: 497. DB::Exception: insert_only: Not enough privileges. (ACCESS_DENIED)")
        form = INSERT_FORMAT.search(query) if INSERT.match(query) else None
        if form:
            work = insert(query[:form.start()], form.group(1), settings, body)
        else:
            statement = (query + "\n" + body.decode()).strip().rstrip(";")
            work = select(statement, named.get("default_format", "TabSeparated"), settings, params)
        result, error = self.server.engine.do(named.get("database") or "default", work)
        if error is None:
            return self.answer(200, result)
        self.refuse(error)

    def refuse(self, error):
        found = re.search(r"Code: (\d+)", error)
        code = int(found.group(1)) if found else 1002
        self.answer(STATUSES.get(code, 500), (error + "\n").encode(), {"X-ClickHouse-Exception-Code": str(code)})

    do_POST = do_GET

    def answer(self, status, content, fields=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in (fields or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--path", required=True)
    arguments.add_argument("--port", type=int, default=0)
    arguments.add_argument("--certificate")
    arguments.add_argument("--password")
    given = arguments.parse_args()
    server = Server(("127.0.0.1", given.port), Handler)
    server.password = given.password
    if given.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(given.certificate)
        # Each connection's own thread does the handshake.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.engine = Engine(given.path)
    _, error = server.engine.do("default", lambda session: session.query("SELECT 1"))
    if error:
        raise SystemExit(error)
    print(server.server_port, flush=True)
    server.serve_forever()


main()

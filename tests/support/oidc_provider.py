"""A small OpenID Connect provider on loopback: it signs in whoever comes, and checks what a client must send."""

from __future__ import annotations

import json
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

CLIENT, SECRET = "console", "known-to-both"


@dataclass
class OidcProvider:
    """`claims` are put over those that are right; `algorithm` and `key` sign."""

    issuer: str
    key: RSAKey | OctKey
    published: RSAKey
    algorithm: str = "RS256"
    claims: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, dict[str, str]] = field(default_factory=dict)

    def authorize(self, query: dict[str, str]) -> str:
        code = f"code-{len(self.asked)}"
        self.asked[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form: dict[str, str], authorization: str) -> dict[str, str] | None:
        asked = self.asked.pop(form.get("code", ""), None)
        challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        expected = "Basic " + b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if asked is None or asked["code_challenge"] != challenge or authorization != expected:
            return None
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": "1", "iat": now, "exp": now + 60, "nonce": asked["nonce"]}
        claims |= {"email": "ann@example.com", "email_verified": True, **self.claims}
        header = {"alg": self.algorithm, "kid": self.published.kid or ""}
        return {"id_token": jwt.encode(header, claims, self.key, algorithms=[self.algorithm])}


@contextmanager
def oidc_provider() -> Iterator[OidcProvider]:
    key = RSAKey.generate_key(2048, {"kid": "first"})
    made = OidcProvider("", key, key)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            at = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(at.query).items()}
            if at.path == "/.well-known/openid-configuration":
                places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
                self._json({"issuer": made.issuer, **{name: f"{made.issuer}/{path}" for name, path in places.items()}})
            elif at.path == "/keys":
                self._json({"keys": [made.published.as_dict(private=False)]})
            else:
                self.send_response(303)
                self.send_header("location", made.authorize(query))
                self.end_headers()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            answer = made.token(form, self.headers.get("authorization", ""))
            self._json(answer or {"error": "invalid_grant"}, 200 if answer else 400)

        def _json(self, document: object, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.issuer = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()

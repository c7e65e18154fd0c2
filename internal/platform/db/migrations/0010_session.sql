-- +goose Up

-- Written by package account: who is signed in, and from which device.
CREATE TABLE sessions (
  hash       TEXT PRIMARY KEY,                      -- SHA-256 of the cookie's token, hex
  id         TEXT NOT NULL UNIQUE,                  -- what lists and logs call it
  user_id    TEXT NOT NULL REFERENCES users (id),
  method     TEXT NOT NULL,                         -- setup, password, totp, recovery, passkey
  pending    BOOLEAN NOT NULL,                      -- the password was right, the second factor is still owed
  agent      TEXT NOT NULL,
  addr       TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  proven_at  BIGINT NOT NULL,                       -- when its holder last proved who they are
  seen_at    BIGINT NOT NULL,
  expires_at BIGINT NOT NULL                        -- whatever happens
);
CREATE INDEX sessions_user ON sessions (user_id, seen_at);
CREATE INDEX sessions_end ON sessions (expires_at);

-- Written by package account: time-based one-time passwords (RFC 6238).
CREATE TABLE second_factors (
  user_id    TEXT PRIMARY KEY REFERENCES users (id),
  secret     TEXT NOT NULL,                         -- sealed
  confirmed  BOOLEAN NOT NULL,                      -- false: offered, not yet proven to work
  last_step  BIGINT NOT NULL,                       -- the newest step a code was used of: none works twice
  created_at BIGINT NOT NULL
);

-- Written by package account: what lets somebody in who lost their second factor.
CREATE TABLE recovery_codes (
  hash       TEXT PRIMARY KEY,                      -- SHA-256 of user and code, hex
  user_id    TEXT NOT NULL REFERENCES users (id),
  created_at BIGINT NOT NULL
);
CREATE INDEX recovery_codes_user ON recovery_codes (user_id);

-- Written by package account: WebAuthn credentials.
CREATE TABLE passkeys (
  id         TEXT PRIMARY KEY,
  user_id    TEXT NOT NULL REFERENCES users (id),
  credential TEXT NOT NULL UNIQUE,                  -- the authenticator's id of it, base64url
  record     TEXT NOT NULL,                         -- JSON: public key, counters, flags
  name       TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  used_at    BIGINT NOT NULL                        -- 0: never
);
CREATE INDEX passkeys_user ON passkeys (user_id);

-- Written by package account: WebAuthn ceremonies that were begun.
CREATE TABLE ceremonies (
  hash       TEXT PRIMARY KEY,                      -- SHA-256 of the token that finishes it, hex
  user_id    TEXT NOT NULL,                         -- empty: somebody who is not signed in
  record     TEXT NOT NULL,                         -- JSON: the challenge and what was asked for
  expires_at BIGINT NOT NULL
);
CREATE INDEX ceremonies_end ON ceremonies (expires_at);

-- Written by package audit: who did what, with which key or session, from where.
CREATE TABLE audit (
  id         TEXT PRIMARY KEY,                      -- sorts by time
  at         BIGINT NOT NULL,
  user_id    TEXT NOT NULL,                         -- who did it
  about      TEXT NOT NULL,                         -- the other user it concerns, or empty
  key_id     TEXT NOT NULL,                         -- empty: not by a key
  session_id TEXT NOT NULL,                         -- empty: not by a session
  addr       TEXT NOT NULL,
  action     TEXT NOT NULL,                         -- noun.verb
  subject    TEXT NOT NULL,                         -- the id of what it was done to, or empty
  detail     TEXT NOT NULL                          -- in words, never a secret
);
CREATE INDEX audit_user ON audit (user_id, id);
CREATE INDEX audit_about ON audit (about, id) WHERE about <> '';
CREATE INDEX audit_at ON audit (at);

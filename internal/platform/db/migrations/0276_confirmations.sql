-- +goose Up

-- Written by package confirmation: calls of agents that a person has to confirm.
CREATE TABLE confirmations (
  id         TEXT   NOT NULL PRIMARY KEY,
  user_id    TEXT   NOT NULL REFERENCES users (id) ON DELETE CASCADE, -- who confirms
  owner_id   TEXT   NOT NULL,             -- whose things it is about: an account's or a team's
  binding    TEXT   NOT NULL,             -- digest of the credential, the tool and its arguments
  via        TEXT   NOT NULL,             -- the agent's credential in words
  addr       TEXT   NOT NULL,             -- from which it asked
  title      TEXT   NOT NULL,             -- of the tool
  about      TEXT   NOT NULL,             -- JSON: labels and values that the person reads
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  decision   TEXT   NOT NULL DEFAULT '',  -- approved or declined; empty: open
  used_at    BIGINT NOT NULL DEFAULT 0    -- 0: the call was not made yet
);
CREATE INDEX confirmations_user ON confirmations (user_id, binding);
CREATE INDEX confirmations_expiry ON confirmations (expires_at);

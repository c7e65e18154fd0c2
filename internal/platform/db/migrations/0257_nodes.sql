-- +goose Up

-- Written by package node: the processes that serve this installation, one for each data directory.
CREATE TABLE nodes (
  id          TEXT PRIMARY KEY,     -- of its data directory
  run         TEXT NOT NULL,        -- of its process: of two with one data directory the later one has the row
  name        TEXT NOT NULL,        -- the host's, for people
  address     TEXT NOT NULL,        -- host:port at which other nodes reach it; empty: they don't
  version     TEXT NOT NULL,
  roles       TEXT NOT NULL,        -- separated by commas
  blobs       TEXT NOT NULL,        -- where its files are; empty: in its data directory. Without credentials.
  site_domain TEXT NOT NULL,
  ahead_ms    BIGINT NOT NULL,      -- how far its clock is ahead of the database's
  state       TEXT NOT NULL,        -- up, draining or down
  started_at  BIGINT NOT NULL,
  seen_at     BIGINT NOT NULL,      -- these three by the database's clock
  lease_until BIGINT NOT NULL       -- what it runs is its own until then; 0: it has stopped
);

-- Written by package node: which key the installation's secrets are sealed with.
CREATE TABLE secrets_keys (
  id     BIGINT PRIMARY KEY,        -- always 1
  key_id TEXT NOT NULL              -- the first digits of the newest key's digest
);

CREATE VIEW live_nodes AS SELECT id, name, address, state, lease_until FROM nodes;

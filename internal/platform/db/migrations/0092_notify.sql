-- +goose Up

-- Written by package notify: where people are told of what needs them.
CREATE TABLE notify_channels (
  id         TEXT PRIMARY KEY,
  owner_id   TEXT NOT NULL,
  site_id    TEXT NOT NULL,      -- empty: all sites of the owner
  kind       TEXT NOT NULL,      -- slack, discord, teams, mail
  name       TEXT NOT NULL,
  url        TEXT NOT NULL,      -- sealed: of the service's incoming webhook; empty for mail
  events     TEXT NOT NULL,      -- names separated by spaces
  active     BOOLEAN NOT NULL,
  error      TEXT NOT NULL,      -- why the service last refused a message; empty: it didn't
  sent_at    BIGINT NOT NULL,    -- when a message last got through; 0: never
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX notify_channels_owner ON notify_channels (owner_id, created_at);

-- Written by package notify: what failed and has not recovered.
CREATE TABLE notify_failing (
  site_id TEXT NOT NULL,
  subject TEXT NOT NULL,         -- target and branch of deployments
  since   BIGINT NOT NULL,
  PRIMARY KEY (site_id, subject)
);

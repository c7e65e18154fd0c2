-- +goose Up

-- Written by package site: how many sites an owner made on a day, those that are deleted
-- by now as well: each takes a build identity that rests for 30 days after its end.
CREATE TABLE site_starts (
  owner_id TEXT NOT NULL,
  day      BIGINT NOT NULL,    -- since 1970, UTC
  n        BIGINT NOT NULL,
  PRIMARY KEY (owner_id, day)
);

-- For counting what an owner has pending.
CREATE INDEX deployments_pending_of_owner ON deployments (owner_id) WHERE status = 'pending';

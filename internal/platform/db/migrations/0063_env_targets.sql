-- +goose Up

-- Written by package site: environment variables, every value sealed; renamed to env below.
-- A key may exist once for production and once for previews, or once for both.
CREATE TABLE env_by_target (
  id         TEXT PRIMARY KEY,
  site_id    TEXT NOT NULL,
  key        TEXT NOT NULL,
  value      TEXT NOT NULL,
  secret     BOOLEAN NOT NULL,
  target     TEXT NOT NULL,      -- build, runtime, and production or preview where it is for one of them alone; separated by commas
  scope      TEXT NOT NULL,      -- production, preview; empty: both
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (site_id, key, scope)
);
INSERT INTO env_by_target (id, site_id, key, value, secret, target, scope, created_at, updated_at)
  SELECT id, site_id, key, value, secret, target, '', created_at, updated_at FROM env;
DROP TABLE env;
ALTER TABLE env_by_target RENAME TO env;

-- +goose Up

-- Written by package database: databases of sites on the installation's MariaDB server.
CREATE TABLE databases (
  id          TEXT PRIMARY KEY,
  site_id     TEXT NOT NULL,
  owner_id    TEXT NOT NULL,
  engine      TEXT NOT NULL,       -- mariadb
  name        TEXT NOT NULL,       -- the owner's name for it, unique in the site
  place       BIGINT NOT NULL,     -- 0: its variables have no prefix; else they begin with its name
  schema_name TEXT NOT NULL,       -- on the server; the user has the same name
  password    TEXT NOT NULL,       -- sealed
  server      TEXT NOT NULL,       -- which server holds it; empty: none yet
  status      TEXT NOT NULL,       -- creating, active, error, deleting
  reason      TEXT NOT NULL,       -- why it is in error
  size_bytes  BIGINT NOT NULL,
  is_full     BOOLEAN NOT NULL,    -- over its limit: it can be read and emptied alone
  created_at  BIGINT NOT NULL
);
CREATE UNIQUE INDEX databases_schema ON databases (schema_name);
CREATE UNIQUE INDEX databases_name ON databases (site_id, name) WHERE status <> 'deleting';
CREATE UNIQUE INDEX databases_place ON databases (site_id, place) WHERE status <> 'deleting';
CREATE INDEX databases_owner ON databases (owner_id);

-- +goose Up

-- Written by package database: databases on a server that are no site's, or no longer one's: what
-- a restore or a verification loads, and what a restored database has replaced. They are
-- dropped once their time is over.
CREATE TABLE database_scratch (
  schema_name TEXT PRIMARY KEY, -- on the server; the user has the same name
  server      TEXT NOT NULL,
  until       BIGINT NOT NULL
);

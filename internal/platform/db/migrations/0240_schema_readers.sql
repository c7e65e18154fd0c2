-- +goose Up

-- Written by package db: the oldest program that works with this database, by the newest schema version that it knows.
CREATE TABLE schema_readers (
  id           BIGINT PRIMARY KEY,
  schema_known BIGINT NOT NULL
);

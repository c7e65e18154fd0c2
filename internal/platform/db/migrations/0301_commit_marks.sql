-- +goose Up

-- Written by package db: what transactions leave that were committed, so that a lost answer to a COMMIT can be found out; for an hour.
-- A mark that is barred was left to keep a transaction from being committed.
CREATE TABLE commit_marks (
  id     TEXT PRIMARY KEY, -- sorts by the time it was made
  barred BOOLEAN NOT NULL DEFAULT FALSE
);

-- +goose Up

-- Written by package idempotency.
CREATE TABLE idempotent_answers (
  scope       TEXT NOT NULL,    -- whose key it is: a user or a deploy hook
  method      TEXT NOT NULL,
  path        TEXT NOT NULL,
  key         TEXT NOT NULL,
  fingerprint TEXT NOT NULL,    -- SHA-256 of the request, hex
  answer      TEXT NOT NULL,    -- sealed
  created_at  BIGINT NOT NULL,
  PRIMARY KEY (scope, method, path, key)
);
CREATE INDEX idempotent_answers_created ON idempotent_answers (created_at);

-- +goose Up

-- Written by package ratelimit.
CREATE TABLE rate_windows (
  key     TEXT PRIMARY KEY,
  n       BIGINT NOT NULL,  -- requests in this window, refused ones included
  ends_at BIGINT NOT NULL
);
CREATE INDEX rate_windows_ends ON rate_windows (ends_at);

-- +goose Up

-- Written by package storage: what the storage of sites' programs holds.
CREATE TABLE app_storage (
  site_id      TEXT PRIMARY KEY,
  bytes        BIGINT NOT NULL, -- that of its previews included
  capped_bytes BIGINT NOT NULL, -- where its owner has no room left: what it held then; else 0
  measured_at  BIGINT NOT NULL
);

-- +goose Up

-- Written by package upload: what was received of a file that is sent in parts. Each part is a blob.
CREATE TABLE upload_parts (
  upload_id TEXT NOT NULL REFERENCES uploads (id) ON DELETE CASCADE,
  digest    TEXT NOT NULL,          -- of the whole file
  start     BIGINT NOT NULL,        -- where the part begins in it
  size      BIGINT NOT NULL,        -- the part's bytes
  blob      TEXT NOT NULL,
  PRIMARY KEY (upload_id, digest, start)
);

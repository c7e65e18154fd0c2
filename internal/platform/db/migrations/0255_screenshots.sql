-- +goose Up

-- Written by package screenshot: sites as visitors see them.
CREATE TABLE screenshots (
  site_id TEXT NOT NULL,
  kind    TEXT NOT NULL,          -- live, or before and after the last update of its WordPress
  image   TEXT NOT NULL,          -- a JPEG in base64; empty: none could be taken
  made_at BIGINT NOT NULL,
  PRIMARY KEY (site_id, kind)
);

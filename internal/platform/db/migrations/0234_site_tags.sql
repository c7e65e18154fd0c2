-- +goose Up

-- The site's tags in lower case, sorted, each between two line breaks; empty: none.
ALTER TABLE sites ADD COLUMN tags TEXT NOT NULL DEFAULT '';

-- Written by package site: the sites that a user wants to see first.
CREATE TABLE site_favorites (
  user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  site_id TEXT NOT NULL REFERENCES sites (id) ON DELETE CASCADE,
  PRIMARY KEY (user_id, site_id)
);
CREATE INDEX site_favorites_site ON site_favorites (site_id);

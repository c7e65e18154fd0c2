-- +goose Up

-- Written by package site: how a site's requests are answered beyond its release. No row: nothing said.
CREATE TABLE site_serving (
  site_id  TEXT PRIMARY KEY,
  settings TEXT NOT NULL -- JSON: hosts that rules may forward to, who must give which password (hashed)
);

-- The edge's contract. A change takes the site's next live version.
CREATE VIEW serving AS
  SELECT site_id, settings FROM site_serving;

-- +goose Up

-- Written by package traffic. What a site's visitors asked for in one stretch of time. Only
-- stretches with visits have a row; a longer one sums up shorter ones that are over.
CREATE TABLE traffic (
  site_id       TEXT NOT NULL,
  span          BIGINT NOT NULL,  -- milliseconds: 300000, 3600000 or 86400000
  at            BIGINT NOT NULL,  -- when it begins, a multiple of span
  ok            BIGINT NOT NULL,  -- answers with a status 2xx
  redirected    BIGINT NOT NULL,  -- 3xx
  client_errors BIGINT NOT NULL,  -- 4xx
  server_errors BIGINT NOT NULL,  -- 5xx
  pages         BIGINT NOT NULL,  -- those of the answers that brought an HTML page
  bytes         BIGINT NOT NULL,  -- of bodies, as they were sent
  PRIMARY KEY (site_id, span, at)
);
CREATE INDEX traffic_at ON traffic (span, at);

-- Written by package thumbnail. What a release looks like at a glance. One row for each release
-- that is live; it can be made again from the release's own files.
CREATE TABLE portraits (
  release TEXT PRIMARY KEY,
  title   TEXT NOT NULL,
  text    TEXT NOT NULL,
  colour  TEXT NOT NULL,  -- #rrggbb, or empty
  icon    TEXT NOT NULL,  -- a PNG of our own making in base64, or empty
  image   TEXT NOT NULL,  -- a JPEG of our own making in base64, or empty
  made_at BIGINT NOT NULL
);

-- +goose Up

-- Written by package traffic. What was counted by name on one day (UTC): pages, paths that
-- were not found, hosts that visitors came from, countries. The empty name stands for all
-- those that were too many.
CREATE TABLE traffic_top (
  site_id TEXT NOT NULL,
  day     BIGINT NOT NULL,  -- when it begins
  kind    TEXT NOT NULL,    -- page, missing, referrer, country
  name    TEXT NOT NULL,
  hits    BIGINT NOT NULL,
  PRIMARY KEY (site_id, day, kind, name)
);
CREATE INDEX traffic_top_day ON traffic_top (day);

-- Written by package traffic. Sites' access logs: some seconds of one per row.
CREATE TABLE access_log (
  site_id TEXT NOT NULL,
  at      BIGINT NOT NULL,  -- when the row was written
  id      TEXT NOT NULL,    -- of rows of the same moment
  size    BIGINT NOT NULL,  -- of body
  body    TEXT NOT NULL,    -- JSON lines, gzip, base64
  PRIMARY KEY (site_id, at, id)
);
CREATE INDEX access_log_at ON access_log (at);

-- +goose Down
DROP TABLE access_log;
DROP TABLE traffic_top;

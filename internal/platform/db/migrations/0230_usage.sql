-- +goose Up

-- Written by package usage: what each source counted of an owner's use in one hour, as an absolute
-- quantity that only grows. Writing it again changes nothing, and two sources never share a row.
CREATE TABLE usage_sources (
  owner_id TEXT NOT NULL,
  meter    TEXT NOT NULL,
  hour     BIGINT NOT NULL,   -- when it begins
  source   TEXT NOT NULL,     -- a process, dep_.../attempt, or sample
  site_id  TEXT NOT NULL,     -- '' where no site uses it
  quantity BIGINT NOT NULL,
  counted  BIGINT NOT NULL,   -- so much of it is in sealed hours
  moved    BIGINT NOT NULL,   -- what the last sealing added to them
  PRIMARY KEY (owner_id, meter, hour, source, site_id)
);
CREATE INDEX usage_sources_open ON usage_sources (owner_id, meter, hour) WHERE counted < quantity;
CREATE INDEX usage_sources_hour ON usage_sources (hour);

-- Written by package usage: sealed hours, which never change.
CREATE TABLE usage_hours (
  owner_id TEXT NOT NULL,
  meter    TEXT NOT NULL,
  hour     BIGINT NOT NULL,
  quantity BIGINT NOT NULL,
  PRIMARY KEY (owner_id, meter, hour)
);
CREATE INDEX usage_hours_hour ON usage_hours (hour);

-- Written by package usage: the sealed hours of each day (UTC), added up.
CREATE TABLE usage_days (
  owner_id TEXT NOT NULL,
  meter    TEXT NOT NULL,
  day      BIGINT NOT NULL,
  quantity BIGINT NOT NULL,
  PRIMARY KEY (owner_id, meter, day)
);

-- Written by package usage: the same by site.
CREATE TABLE usage_sites (
  owner_id TEXT NOT NULL,
  meter    TEXT NOT NULL,
  day      BIGINT NOT NULL,
  site_id  TEXT NOT NULL,
  quantity BIGINT NOT NULL,
  PRIMARY KEY (owner_id, meter, day, site_id)
);
CREATE INDEX usage_sites_day ON usage_sites (day);

-- Written by package usage: up to which hour everything is sealed. It has one row.
CREATE TABLE usage_sealed (
  one  BIGINT PRIMARY KEY,
  hour BIGINT NOT NULL
);
INSERT INTO usage_sealed (one, hour) VALUES (1, 0);

-- Written by package usage: how near an owner is to a limit of a calendar month (UTC).
CREATE TABLE usage_caps (
  owner_id TEXT NOT NULL,
  meter    TEXT NOT NULL,
  month    BIGINT NOT NULL,   -- 202611 is November 2026
  most     BIGINT NOT NULL,   -- the limit that warned is a share of
  warned   BIGINT NOT NULL,   -- the highest share that was told of, in percent
  armed    BOOLEAN NOT NULL,  -- whether so little is left that nodes need leases
  reached  BOOLEAN NOT NULL,  -- whether nothing is left
  PRIMARY KEY (owner_id, meter, month)
);

-- What versions before this one counted, and count while they run beside it. Its tables go with a
-- later migration.
CREATE VIEW usage_before AS
  SELECT owner_id, 'bandwidth.bytes' AS meter, month, '' AS site_id, bytes AS quantity FROM bandwidth
  UNION ALL
  SELECT owner_id, 'build.ms' AS meter, month, site_id, ms AS quantity FROM build_time;

INSERT INTO usage_caps (owner_id, meter, month, most, warned, armed, reached)
  SELECT owner_id, 'bandwidth.bytes', month, 0, 0, FALSE, TRUE FROM bandwidth WHERE paused;

-- The edge's contract: the sites that are paused for a month because their owner's bandwidth
-- is used up.
DROP VIEW paused_sites;
CREATE VIEW paused_sites AS
  SELECT s.id AS site_id, c.month AS month
  FROM usage_caps c JOIN sites s ON s.owner_id = c.owner_id
  WHERE c.reached AND c.meter = 'bandwidth.bytes' AND s.deleted_at = 0;

-- +goose Up

-- Nothing reads thumbnails any more: sites without a screenshot show their own icon. The table and its view stay for
-- nodes of the version before, which write them during an upgrade.
DELETE FROM thumbnails;

-- +goose Up

-- Git accounts and notification channels of users and teams that were deleted before their deletion included these.
DELETE FROM connections WHERE owner_id NOT IN (SELECT id FROM owners);
DELETE FROM notify_channels WHERE owner_id NOT IN (SELECT id FROM owners);
DELETE FROM notify_refused WHERE owner_id NOT IN (SELECT id FROM owners);

-- +goose Up

-- A page of a large team's members, in the order of the list.
CREATE INDEX team_members_joined ON team_members (owner_id, joined_at, user_id);

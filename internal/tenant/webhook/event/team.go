package event

import "slipway/internal/platform/id"

// Member is a team member in events. Guests have an empty role.
type Member struct {
	Team        string
	User        id.User
	Email, Role string
	Sites       []SiteRole
}

// SiteRole is a role on a single site.
type SiteRole struct {
	Site id.Site
	Role string
}

type teamData struct {
	ID string `json:"id"`
}

type memberData struct {
	UserID id.User        `json:"userId"`
	Email  string         `json:"email" format:"email"`
	Role   *string        `json:"role" enum:"owner,admin,developer,contributor,viewer,billing"` // null: a guest
	Sites  []siteRoleData `json:"sites"`
}

type siteRoleData struct {
	SiteID id.Site `json:"siteId"`
	Role   string  `json:"role" enum:"manager,developer,contributor,viewer"`
}

// transferData holds the previous and new owner of a site as team IDs; null is a personal account.
type transferData struct {
	From *string `json:"from"`
	To   *string `json:"to"`
}

func member(m Member) data {
	out := memberData{UserID: m.User, Email: m.Email, Role: word(m.Role), Sites: []siteRoleData{}}
	for _, s := range m.Sites {
		out.Sites = append(out.Sites, siteRoleData{s.Site, s.Role})
	}
	return data{Team: &teamData{m.Team}, Member: &out}
}

// MemberAdded returns the event for a user who joined a team.
func MemberAdded(m Member) Event { return Event{names: []string{"member.added"}, data: member(m)} }

// MemberRemoved returns the event for a user who left or was removed from a team.
func MemberRemoved(m Member) Event { return Event{names: []string{"member.removed"}, data: member(m)} }

// MemberRoleChanged returns the event for a member whose role in the team or on a site changed.
func MemberRoleChanged(m Member) Event {
	return Event{names: []string{"member.role_changed"}, data: member(m)}
}

// SiteTransferred returns the event for a site transferred between owners, given as team IDs or "" for personal
// accounts. Both owners get it.
func SiteTransferred(s Site, from, to string) Event {
	e := Event{names: []string{"site.transferred"}, data: site(s)}
	e.data.Transfer = &transferData{word(from), word(to)}
	return e
}

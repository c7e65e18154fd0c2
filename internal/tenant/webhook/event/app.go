package event

import "slipway/internal/platform/id"

// Grant is a user's grant to an app, in events about apps.
type Grant struct {
	App, Name string // the app
	ID, User  string // the grant, and the user who gave it
	Scopes    []string
	Sites     []id.Site // empty: all
}

type appData struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type grantData struct {
	ID      string    `json:"id"`
	UserID  string    `json:"userId"`
	Scopes  []string  `json:"scopes"`
	SiteIDs []id.Site `json:"siteIds"` // empty: all
}

func grant(g Grant) data {
	return data{
		App:   &appData{g.App, g.Name},
		Grant: &grantData{g.ID, g.User, append([]string{}, g.Scopes...), append([]id.Site{}, g.Sites...)},
	}
}

// AppAuthorized returns the event for an authorized app. It goes to the account the app acts for and to the account
// that registered the app.
func AppAuthorized(g Grant) Event { return Event{names: []string{"app.authorized"}, data: grant(g)} }

// AppRevoked returns the event for an app whose access ended. It goes to the same accounts as AppAuthorized.
func AppRevoked(g Grant) Event { return Event{names: []string{"app.revoked"}, data: grant(g)} }

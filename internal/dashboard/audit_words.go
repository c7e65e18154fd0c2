package dashboard

import "strings"

// deeds are the audit log's actions in people's words.
var deeds = map[string]string{
	"session.started": "Signed in", "session.refused": "Sign-in refused", "session.ended": "Signed out a session", "sessions.ended": "Signed out all other sessions",
	"password.set": "Set a password", "password.changed": "Changed the password", "password.link": "Made a link for a new password", "password.reset_mailed": "Mailed a link for a new password, as somebody asked",
	"mail.undelivered":      "A mail could not be delivered",
	"second_factor.enabled": "Turned on the second factor", "second_factor.disabled": "Turned off the second factor", "second_factor.codes_renewed": "Renewed the recovery codes",
	"passkey.added": "Added a passkey", "passkey.removed": "Removed a passkey",
	"key.created": "Created an API key", "key.revoked": "Revoked an API key",
	"user.invited": "Invited a user", "user.uninvited": "Took an invitation back",
	"user.suspended": "Suspended a user", "user.resumed": "Let a suspended user in again", "user.role": "Changed a role", "user.deleted": "Deleted a user",
}

// deedWords is an action in words; one that has none is shown as it stands.
func deedWords(action string) string {
	if w, ok := deeds[action]; ok {
		return w
	}
	noun, verb, _ := strings.Cut(action, ".")
	text := strings.ReplaceAll(verb+" "+noun, "_", " ")
	if text == " " || text == "" {
		return action
	}
	return upperFirst(text)
}

// nounWords names what the log can be narrowed to.
func nounWords(noun string) string {
	switch noun {
	case "key":
		return "API keys"
	case "env":
		return "Environment"
	case "mail":
		return "Mail"
	}
	return upperFirst(strings.ReplaceAll(noun, "_", " ")) + "s"
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

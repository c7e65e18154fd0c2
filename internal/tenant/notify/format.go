package notify

import "strings"

// body renders a message in the service's format. Users' text is escaped, so that it can't add formatting, mentions or
// links.
func body(k Kind, m Message, link string) any {
	type obj = map[string]any
	switch k {
	case Slack: // https://docs.slack.dev/messaging/formatting-message-text
		escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "*", "∗", "`", "'", "@", "@\u200b").Replace
		text := "*" + escape(m.Title) + "*"
		blocks := []obj{{"type": "section", "text": obj{"type": "mrkdwn", "text": text}}}
		if m.Text != "" {
			blocks = append(blocks, obj{"type": "section", "text": obj{"type": "plain_text", "text": m.Text, "emoji": false}})
		}
		blocks = append(blocks, obj{
			"type":     "actions",
			"elements": []obj{{"type": "button", "text": obj{"type": "plain_text", "text": "Open in Slipway"}, "url": link}},
		})
		return obj{"text": escape(m.Title), "blocks": blocks}
	case Discord: // https://discord.com/developers/docs/resources/webhook#execute-webhook
		escape := strings.NewReplacer(
			`\`, `\\`, "*", `\*`, "_", `\_`, "~", `\~`, "`", "\\`", "|", `\|`, ">", `\>`, "[", `\[`, "]", `\]`, "#",
			`\#`,
		).Replace
		color := 0xd93025
		if m.Good {
			color = 0x1e8e3e
		}
		return obj{
			"username": "Slipway", "allowed_mentions": obj{"parse": []string{}},
			"embeds": []obj{{"title": escape(m.Title), "description": escape(m.Text), "url": link, "color": color}},
		}
	}
	// An adaptive card, as accepted by Teams' workflow "When a Teams webhook request is received":
	// https://learn.microsoft.com/power-automate/teams/send-a-message-in-teams
	escape := strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "`", "'", "<", "‹", ">", "›").Replace
	color := "attention"
	if m.Good {
		color = "good"
	}
	lines := []obj{{"type": "TextBlock", "text": escape(m.Title), "weight": "bolder", "size": "medium", "color": color, "wrap": true}}
	if m.Text != "" {
		lines = append(lines, obj{"type": "TextBlock", "text": escape(m.Text), "wrap": true})
	}
	return obj{"type": "message", "attachments": []obj{{
		"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil,
		"content": obj{
			"$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
			"type":    "AdaptiveCard",
			"version": "1.4",
			"body":    lines,
			"actions": []obj{{"type": "Action.OpenUrl", "title": "Open in Slipway", "url": link}},
		},
	}}}
}

package agents

import (
	"strings"
	"testing"
)

// Adding the server to an agent's settings keeps their order and all other entries, and adding it again changes
// nothing.
func TestSettings(t *testing.T) {
	t.Parallel()
	args := []string{"mcp", "serve", "--server", "https://slipway.example"}
	const server = `"slipway": {
      "type": "stdio",
      "command": "slipway",
      "args": [
        "mcp",
        "serve",
        "--server",
        "https://slipway.example"
      ]
    }`
	for name, tt := range map[string]struct{ old, want string }{
		"none":  {"", "{\n  \"mcpServers\": {\n    " + server + "\n  }\n}\n"},
		"empty": {"{}", "{\n  \"mcpServers\": {\n    " + server + "\n  }\n}\n"},
		"others": {
			`{"z": 1.50, "mcpServers": {"b": {"command": "x"}, "slipway": {"url": "https://old"}, "a": {}}, "hooks": [1, 2]}`,
			"{\n  \"z\": 1.50,\n  \"mcpServers\": {\n    \"b\": {\n      \"command\": \"x\"\n    },\n    " + server +
				",\n    \"a\": {}\n  },\n  \"hooks\": [\n    1,\n    2\n  ]\n}\n",
		},
		"comments": {"// mine\n{}", ""},
		"a list":   {"[]", ""},
		"twice":    {"{} {}", ""},
		"no map":   {`{"mcpServers": []}`, ""},
	} {
		got, err := withServer([]byte(tt.old), "mcpServers", "slipway", args)
		if string(got) != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, tt.want)
		}
		if err == nil {
			if again, err := withServer(got, "mcpServers", "slipway", args); err != nil || string(again) != string(got) {
				t.Errorf("%s: the second time it is %s, %v", name, again, err)
			}
		}
	}
	const table = "[mcp_servers.slipway]\ncommand = \"slipway\"\nargs = [\"mcp\", \"serve\", \"--server\", \"https://slipway.example\"]\n"
	for name, tt := range map[string]struct{ old, want string }{
		"none":     {"", table},
		"others":   {"model = \"x\" # mine\n\n[mcp_servers.b]\ncommand = \"b\"", "model = \"x\" # mine\n\n[mcp_servers.b]\ncommand = \"b\"\n\n" + table},
		"replaced": {"[mcp_servers.slipway]\nurl = \"old\"\n\n[tools]\na = 1\n", table + "\n[tools]\na = 1\n"},
	} {
		got, err := withTable([]byte(tt.old), "slipway", args)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, tt.want)
		}
		if again, err := withTable(got, "slipway", args); err != nil || string(again) != string(got) {
			t.Errorf("%s: the second time it is %s, %v", name, again, err)
		}
	}
	if _, err := withTable([]byte(strings.Repeat("[mcp_servers.slipway]\n", 2)), "slipway", args); err == nil {
		t.Error("a table that is there twice is taken")
	}
}

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slipway/e2e/world"
)

// An agent that starts slipway mcp serve, as configured by slipway mcp install, can use the signed-in user's sites,
// within the limits of the flags.
func TestMCPServe(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = append(w.Flags, "--base-url", "http://"+w.Listen)
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Harbor", "Pier"} {
		if err := w.Call(ctx, key, "POST", "/sites", map[string]any{"name": name, "type": "static", "source": "upload"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	dir, home := t.TempDir(), t.TempDir()
	command := func(token string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, w.Binary, args...)
		cmd.Dir, cmd.Stderr = dir, t.Output()
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=", "SLIPWAY_TOKEN="+token)
		return cmd
	}
	// The agent's configuration starts the server and contains no credential.
	install := command(key, "mcp", "install", "--client", "cursor", "--server", "http://"+w.Listen, "--read", "--sites", "pier")
	if err := install.Run(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(dir + "/.cursor/mcp.json")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), key) {
		t.Errorf("the key is in the settings: %s", text)
	}
	var settings struct {
		MCPServers map[string]struct {
			Command string
			Args    []string
		} `json:"mcpServers"`
	}
	if err := json.Unmarshal(text, &settings); err != nil {
		t.Fatal(err)
	}
	connect := func(token string, args ...string) *sdk.ClientSession {
		t.Helper()
		client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
		s, err := client.Connect(ctx, &sdk.CommandTransport{Command: command(token, args...)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	tools := func(s *sdk.ClientSession) (names []string) {
		t.Helper()
		for tool, err := range s.Tools(ctx, nil) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, tool.Name)
		}
		return names
	}
	sites := func(s *sdk.ClientSession) string {
		t.Helper()
		r, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "list_sites"})
		if err != nil || r.IsError {
			t.Fatalf("list_sites: %v, %v", r, err)
		}
		b, err := json.Marshal(r.Content)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	full := connect(key, "mcp", "serve", "--server", "http://"+w.Listen)
	if names := tools(full); !slices.Contains(names, "deploy") || !slices.Contains(names, "list_sites") {
		t.Errorf("the tools are %v", names)
	}
	if got := sites(full); !strings.Contains(got, "Harbor") || !strings.Contains(got, "Pier") {
		t.Errorf("the sites are %s", got)
	}
	if err := full.Close(); err != nil {
		t.Error(err)
	}
	agent := settings.MCPServers["slipway"]
	narrow := connect(key, agent.Args...)
	if names := tools(narrow); slices.Contains(names, "deploy") {
		t.Errorf("with --read the tools are %v", names)
	}
	if got := sites(narrow); strings.Contains(got, "Harbor") || !strings.Contains(got, "Pier") {
		t.Errorf("with --sites the sites are %s", got)
	}
	if err := narrow.Close(); err != nil {
		t.Error(err)
	}
	// With a wrong key, the agent's error says to run slipway login.
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	_, err = client.Connect(ctx, &sdk.CommandTransport{Command: command("slw_wrong", "mcp", "serve", "--server", "http://"+w.Listen)}, nil)
	if err == nil || !strings.Contains(err.Error(), "slipway login") {
		t.Errorf("with a wrong key: %v", err)
	}
}

// Package agents owns the settings files of AI agents on this machine: it knows where they are and adds an MCP server
// to them.
//
// It keeps everything else in a file, in its order. It doesn't change settings that it can't write back without loss,
// such as JSON with comments.
package agents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/client/inside"
)

// agent is a program whose settings list MCP servers.
type agent struct {
	home bool   // the settings are the user's, not the folder's
	path string // path of the settings, with slashes; if empty, in the system's settings folder
	key  string // JSON key of the servers; empty means TOML
}

var agents = map[string]agent{
	"claude-code":    {path: ".mcp.json", key: "mcpServers"},
	"claude-desktop": {home: true, key: "mcpServers"},
	"cursor":         {path: ".cursor/mcp.json", key: "mcpServers"},
	"vscode":         {path: ".vscode/mcp.json", key: "servers"},
	"gemini":         {path: ".gemini/settings.json", key: "mcpServers"},
	"windsurf":       {home: true, path: ".codeium/windsurf/mcp_config.json", key: "mcpServers"},
	"codex":          {home: true, path: ".codex/config.toml"},
}

// maxSettings bounds an agent's settings.
const maxSettings = 4 << 20

// Settings identifies the settings file of one agent.
type Settings struct {
	Name  string // file name
	dir   string // project folder, in which no link is followed; empty for the user's settings
	agent agent
}

// Of returns the settings file of an agent for a project folder.
func Of(name, dir string) (Settings, error) {
	a, ok := agents[name]
	if !ok {
		return Settings{}, fmt.Errorf("there is no agent %s", name)
	}
	file, err := a.file(dir)
	if a.home {
		dir = ""
	}
	return Settings{file, dir, a}, err
}

// With returns the settings' text with an MCP server named slipway that runs program with args.
func (s Settings) With(program string, args []string) ([]byte, error) {
	old, _, err := s.read()
	if err != nil {
		return nil, err
	}
	var text []byte
	if s.agent.key == "" {
		text, err = withTable(old, program, args)
	} else {
		text, err = withServer(old, s.agent.key, program, args)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	return text, nil
}

// Write replaces the settings' text and keeps the file's mode.
func (s Settings) Write(text []byte) error {
	if s.dir == "" {
		if err := os.MkdirAll(filepath.Dir(s.Name), 0o755); err != nil {
			return err
		}
	}
	_, mode, err := s.read()
	if err != nil {
		return err
	}
	dir, name := s.place()
	f, err := inside.Create(dir, name, mode)
	if err != nil {
		return err
	}
	if _, err = f.Write(text); err == nil {
		err = errors.Join(f.Chmod(mode), f.Commit())
	}
	return errors.Join(err, f.Close())
}

// place returns the folder of the settings and their path in it. The user's own settings may be links, for example into
// a dotfiles repository.
func (s Settings) place() (dir, name string) {
	if s.dir != "" {
		return s.dir, s.Name
	}
	name = s.Name
	if at, err := filepath.EvalSymlinks(name); err == nil {
		name = at
	}
	return filepath.Dir(name), filepath.Base(name)
}

// read returns the settings' text and mode. A missing file is empty.
func (s Settings) read() ([]byte, fs.FileMode, error) {
	dir, name := s.place()
	text, mode, err := inside.Read(dir, name, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0o600, nil
	}
	return text, mode, err
}

// file returns the path of an agent's settings.
func (a agent) file(dir string) (string, error) {
	switch {
	case a.path == "":
		base, err := os.UserConfigDir()
		return filepath.Join(base, "Claude", "claude_desktop_config.json"), err
	case a.home:
		home, err := os.UserHomeDir()
		return filepath.Join(home, filepath.FromSlash(a.path)), err
	}
	return filepath.Join(dir, filepath.FromSlash(a.path)), nil
}

// member is a name in a JSON object with its value, as written.
type member struct {
	name  string
	value json.RawMessage
}

// members parses an object in order.
func members(text []byte) ([]member, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	var list []member
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, errNotJSON
	}
	for d.More() {
		name, err := d.Token()
		key, ok := name.(string)
		var value json.RawMessage
		if err != nil || !ok || d.Decode(&value) != nil {
			return nil, errNotJSON
		}
		list = append(list, member{key, value})
	}
	if end, err := d.Token(); err != nil || end != json.Delim('}') {
		return nil, errNotJSON
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errNotJSON
	}
	return list, nil
}

// errNotJSON is returned for settings with comments, which rewriting would lose.
var errNotJSON = errors.New("it is not plain JSON, so it is left as it is: add the server by hand; --print with an empty file shows it")

// object writes members in their order.
func object(list []member) (json.RawMessage, error) {
	b := []byte("{")
	for i, m := range list {
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, name...), ':'), m.value...)
	}
	return append(b, '}'), nil
}

// set replaces a member or appends it.
func set(list []member, name string, value json.RawMessage) []member {
	i := slices.IndexFunc(list, func(m member) bool { return m.name == name })
	if i < 0 {
		return append(list, member{name, value})
	}
	list[i].value = value
	return list
}

// withServer adds the server to settings in JSON.
func withServer(old []byte, key, program string, args []string) ([]byte, error) {
	all, err := members(old)
	if err != nil {
		return nil, err
	}
	var servers []member
	if i := slices.IndexFunc(all, func(m member) bool { return m.name == key }); i >= 0 {
		if servers, err = members(all[i].value); err != nil {
			return nil, fmt.Errorf("its %s are no object", key)
		}
	}
	entry, err := json.Marshal(struct {
		Type    string   `json:"type"`
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}{"stdio", program, args})
	if err != nil {
		return nil, err
	}
	value, err := object(set(servers, "slipway", entry))
	if err != nil {
		return nil, err
	}
	text, err := object(set(all, key, value))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// withTable adds the server to settings in TOML. It replaces the server's table and keeps everything else.
func withTable(old []byte, program string, args []string) ([]byte, error) {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = strconv.Quote(a)
	}
	table := "[mcp_servers.slipway]\ncommand = " + strconv.Quote(program) + "\nargs = [" + strings.Join(words, ", ") + "]\n"
	var out strings.Builder
	inside, done := false, false
	for line := range strings.Lines(string(old)) {
		head := strings.TrimSpace(line)
		if strings.HasPrefix(head, "[") {
			inside = head == "[mcp_servers.slipway]"
			if inside && done {
				return nil, errors.New("it has the table mcp_servers.slipway twice")
			}
			if inside {
				out.WriteString(table)
				done = true
			}
		}
		if !inside {
			out.WriteString(line)
		} else if head == "" {
			out.WriteString(line)
		}
	}
	if !done {
		text := out.String()
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		if text != "" {
			text += "\n"
		}
		return []byte(text + table), nil
	}
	return []byte(out.String()), nil
}

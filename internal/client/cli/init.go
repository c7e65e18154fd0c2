package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"

	"slipway/internal/client/inside"
)

type initCommand struct {
	target
	Name string `env:"-" help:"Name of the site. Default: the folder's." placeholder:"NAME"`
}

// Run creates a site from the working directory and links it.
func (i initCommand) Run(ctx context.Context, e *Env) error {
	if l, _ := e.findLink(); l.at != "" {
		return fmt.Errorf("%s is linked to a site already: run slipway unlink first", l.at)
	}
	// Check before creating a site that could not be linked.
	if _, _, err := inside.Read(e.Dir, linkFile, maxLink); errors.Is(err, inside.ErrLink) {
		return err
	}
	c, err := i.client(e)
	if err != nil {
		return failure(err)
	}
	name := i.Name
	if name == "" {
		name = filepath.Base(e.Dir)
	}
	answer, err := c.Do(ctx, http.MethodPost, "/sites", map[string]any{"name": name, "type": "static", "source": "upload"})
	if err != nil {
		return failure(err)
	}
	var made struct{ Data site }
	if err := json.Unmarshal(answer, &made); err != nil || made.Data.ID == "" {
		return errors.New("the server's answer names no site")
	}
	if err := e.writeLink(e.Dir, link{c.Server(), made.Data.ID, made.Data.Slug}); err != nil {
		return fmt.Errorf("site %s was created, but the folder could not be linked: %w", made.Data.Slug, err)
	}
	e.say("Created %s. Deploy it with slipway deploy", printable(made.Data.Name))
	if i.JSON {
		return e.json(answer)
	}
	fmt.Fprintln(e.Out, printable(made.Data.URL))
	return nil
}

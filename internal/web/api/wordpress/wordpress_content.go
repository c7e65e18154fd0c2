package wordpress

import (
	"context"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
	"slipway/internal/wordpress/difference"
	"slipway/internal/wordpress/wordpress"
)

// contentBody counts the content of a WordPress.
type contentBody struct {
	Posts    []postsBody `json:"posts" doc:"By type, the most first, at most 50 types. Trash, revisions and automatic drafts don't count. Empty where counting took too long."`
	Comments *amountBody `json:"comments" doc:"Without spam and trash. Null where counting took too long, as the other fields."`
	Users    *amountBody `json:"users" doc:"changedAt is when the newest one registered."`
	Files    *filesBody  `json:"files" doc:"Of wp-content, without caches."`
}

type amountBody struct {
	Count     int64   `json:"count"`
	ChangedAt *string `json:"changedAt" format:"date-time" doc:"When one of them was added or changed last."`
}

type postsBody struct {
	Type      string  `json:"type" example:"post"`
	Name      string  `json:"name" example:"Posts" doc:"In the language of the site."`
	Count     int64   `json:"count"`
	ChangedAt *string `json:"changedAt" format:"date-time"`
}

type filesBody struct {
	Count     int64   `json:"count"`
	Bytes     int64   `json:"bytes"`
	ChangedAt *string `json:"changedAt" format:"date-time"`
}

func showContent(c difference.Content) contentBody {
	amount := func(a *difference.Amount) *amountBody {
		if a == nil {
			return nil
		}
		return &amountBody{a.Count, contract.When(a.Changed.At())}
	}
	out := contentBody{
		Posts: contract.Each(c.Posts, func(a difference.Amount) postsBody {
			return postsBody{a.Type, a.Name, a.Count, contract.When(a.Changed.At())}
		}),
		Comments: amount(c.Comments), Users: amount(c.Users),
	}
	if f := c.Files; f != nil {
		out.Files = &filesBody{f.Count, f.Bytes, contract.When(f.Changed.At())}
	}
	return out
}

type comparisonBody struct {
	From      sideBody      `json:"from"`
	To        sideBody      `json:"to" doc:"The target."`
	SameSince *string       `json:"sameSince" format:"date-time" doc:"When both had the same content: at the last clone, or push of a database, between them. Null if there was none."`
	Newer     []newerBody   `json:"newer" doc:"What of the target was added or changed since sameSince. A push of the database overwrites or deletes it."`
	Options   *optionsDiff  `json:"options" doc:"Options that differ; those that every site has of its own, such as its URL, don't count. Null where one site doesn't respond."`
	Files     *fileDiffBody `json:"files" doc:"How files of wp-content differ. Null where there are too many to compare."`
}

type sideBody struct {
	SiteID        site.ID      `json:"siteId"`
	Error         *string      `json:"error" doc:"Why its WordPress doesn't respond; null: it does."`
	Version       *string      `json:"version"`
	Title         *string      `json:"title"`
	Content       *contentBody `json:"content"`
	DatabaseBytes int64        `json:"databaseBytes"`
}

type newerBody struct {
	Type  string `json:"type" doc:"A type of posts, or comment or user."`
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

type optionsDiff struct {
	Different int      `json:"different"`
	Names     []string `json:"names" doc:"At most 100."`
}

type fileDiffBody struct {
	OnlyInTarget int      `json:"onlyInTarget" doc:"A push of the files deletes them."`
	Different    int      `json:"different"`
	OnlyInSource int      `json:"onlyInSource"`
	NotCompared  int      `json:"notCompared" doc:"Of the same size, but too large to compare their content."`
	Examples     []string `json:"examples" doc:"Some that are only in the target, or different there."`
}

type compareIn struct {
	contract.ByID[site.ID]
	To site.ID `query:"to" required:"true" doc:"Id of the target site."`
}

func (a *API) wordpressComparison() {
	contract.Get(a.API, contract.Route{
		Path: "/sites/{id}/push/compare", ID: "comparePush", Tag: "WordPress", Summary: "Compare two WordPress sites before a push",
		Doc: "What the target has that is newer than the last copy between the two sites, and what else differs. Queried from " +
			"both, which are started if they sleep.",
		Scope: account.SitesRead, Noun: "WordPress settings", Asks: true,
	}, a.comparePush)
}

func (a *API) comparePush(ctx context.Context, c account.Caller, in *compareIn) (comparisonBody, error) {
	for _, id := range []site.ID{in.ID, in.To} {
		if _, err := a.Site(ctx, c, id); err != nil {
			return comparisonBody{}, err
		}
	}
	x, err := a.WordPress.Compare(ctx, c.Owner, in.ID, in.To)
	if err != nil {
		return comparisonBody{}, err
	}
	side := func(s wordpress.Side) sideBody {
		out := sideBody{SiteID: s.Site.ID}
		if f := fault.As(s.Err); f != nil {
			out.Error = contract.Some(f.Message + ": " + f.Details)
			return out
		}
		content := showContent(s.State.Content)
		out.Version, out.Title, out.Content, out.DatabaseBytes = &s.State.Version, &s.State.Title, &content, s.State.DatabaseBytes
		return out
	}
	out := comparisonBody{
		From: side(x.From), To: side(x.To), SameSince: contract.When(x.Since),
		Newer: contract.Each(x.Lost(), func(n difference.Amount) newerBody { return newerBody{n.Type, n.Name, n.Newer} }),
	}
	if x.Known {
		out.Options = &optionsDiff{len(x.Options), contract.Each(x.Options[:min(len(x.Options), 100)], func(s string) string { return s })}
	}
	if f := x.Files; f != nil {
		out.Files = &fileDiffBody{f.Removed, f.Changed, f.Added, f.Unread, append([]string{}, f.Examples...)}
	}
	return out, nil
}

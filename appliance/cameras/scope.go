package cameras

import (
	"context"
	"slices"
)

type scopeKey struct{}

// WithScope returns a context for somebody who may know of these cameras alone; none: of all. Lists must be made within it:
// what is taken out of a page afterwards is still told by the page's length and by the token of the next one.
func WithScope(ctx context.Context, ids []string) context.Context {
	if len(ids) == 0 {
		return ctx
	}
	return context.WithValue(ctx, scopeKey{}, ids)
}

// Scope is what WithScope set; nil: every camera.
func Scope(ctx context.Context) []string {
	ids, _ := ctx.Value(scopeKey{}).([]string)
	return ids
}

// InScope tells whether a camera may be known of.
func InScope(ctx context.Context, id string) bool {
	ids := Scope(ctx)
	return ids == nil || slices.Contains(ids, id)
}

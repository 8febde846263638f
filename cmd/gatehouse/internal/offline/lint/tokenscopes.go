package lint

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// lintTokenScopes notes, at the first document with a scope of tokens, that the API server has to enforce scopes. One note is enough: what
// is missing is missing for all tokens. A configuration that merely lets users narrow their session does not need it, and an API server
// that does not enforce scopes is worth saying.
func (l *linter) lintTokenScopes() {
	const configuration = "AuthenticationConfiguration"
	a, ask := &l.in.Authn, l.in.ScopesEnforced
	scoped := slices.IndexFunc(a.Tokens, func(t authn.Token) bool { return t.Spec.Scope != nil })
	var (
		d     document
		field string
	)
	switch c := a.Configuration; {
	case c != nil && len(c.Scopes) > 0:
		d, field = l.document(c.Source, configuration, &metav1.ObjectMeta{}), "scopes"
	case scoped >= 0:
		d, field = l.document(a.Tokens[scoped].Source, "AccessToken", &a.Tokens[scoped].ObjectMeta), "spec.scope"
	case c != nil && c.Login != nil && ask != nil:
		d, field = l.document(c.Source, configuration, &metav1.ObjectMeta{}), "login"
	default:
		return
	}
	if d.object == configuration+"/" {
		d.object = configuration
	}
	found := diagnostic.Diagnostic{Severity: diagnostic.Note, Field: field, Code: string(TokenScope)}
	if ask == nil {
		found.Message = "tokens with a scope are rejected until the API server asks Gatehouse about their requests"
		found.Hint = "gatehouse manifests --authorization prints what the API server needs, and gatehouse probe --authorization --context NAME checks it"
		d.add(found)
		return
	}
	if err := ask(); err != nil {
		found.Message = "tokens with a scope are rejected as long as the API server is not known to enforce scopes: " + err.Error()
		d.add(found)
	}
}

package jwt

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Authenticator verifies the tokens of one issuer and maps their claims. It is
// immutable and safe for concurrent use.
type Authenticator struct {
	issuer      string
	audiences   []string
	keys        Keys
	username    mapping
	groups      mapping
	uid         mapping
	required    []requirement
	expressions expressions
	warnings    []Warning

	// config is for trails alone.
	config *apiserver.JWTAuthenticator
}

// mapping is a claim that becomes a part of the user. Its zero value maps nothing.
type mapping struct {
	claim  name
	prefix string
}

// requirement is a claim that must have a value.
type requirement struct {
	claim name
	value string
	// path is its place in the configuration, for trails.
	path string
}

// name is the name of a claim, as text and as rawjson.AppendString writes it.
type name struct {
	text   string
	quoted []byte
}

func newName(text string) name { return name{text, rawjson.AppendString(nil, text)} }

// dynHint is the hint for lists, whose type CEL does not know before there is a token.
const dynHint = "; hint: what a claim holds is not known before there is a token, so write dyn(claims.groups).map(g, …) for claims.groups.map(g, …)"

// Compile checks an issuer's configuration, which has upstream's defaults, and
// compiles its expressions. Nil Keys are the keys of an issuer that cannot be
// known: of its tokens nothing can be told.
//
// The diagnostics are upstream's, with paths that begin at the JWTAuthenticator, and
// one more: an egress selector is refused, because it chooses among the API
// server's own ways out, and there is none to choose from here. If there are any,
// there is no Authenticator.
func Compile(config *apiserver.JWTAuthenticator, keys Keys) (*Authenticator, field.ErrorList) {
	recorded := newRecorder()
	_, errs := validation.CompileAndValidateJWTAuthenticator(recorded, *config, nil)
	for _, err := range errs {
		if strings.Contains(err.Detail, "cannot be range of a comprehension") {
			err.Detail += dynHint
		}
	}
	if t := config.Issuer.EgressSelectorType; t != "" {
		errs = append(errs, field.Invalid(field.NewPath("issuer", "egressSelectorType"), t,
			"is not supported: it chooses among the API server's own connections; this server reaches the issuer directly"))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	a := &Authenticator{
		issuer:      config.Issuer.URL,
		audiences:   slices.Clone(config.Issuer.Audiences),
		keys:        keys,
		username:    prefixed(config.ClaimMappings.Username),
		groups:      prefixed(config.ClaimMappings.Groups),
		expressions: recorded.expressions(config),
		warnings:    warnings(config),
		config:      config.DeepCopy(),
	}
	if claim := config.ClaimMappings.UID.Claim; claim != "" {
		a.uid.claim = newName(claim)
	}
	for i, rule := range config.ClaimValidationRules {
		if rule.Claim != "" {
			a.required = append(a.required, requirement{newName(rule.Claim), rule.RequiredValue, claimRulePath(i)})
		}
	}
	return a, nil
}

func prefixed(from apiserver.PrefixedClaimOrExpression) mapping {
	var m mapping
	if from.Claim != "" {
		m.claim = newName(from.Claim)
	}
	if from.Prefix != nil {
		m.prefix = *from.Prefix
	}
	return m
}

// Issuer returns the URL of the issuer, which Token.Issuer returns for its tokens.
func (a *Authenticator) Issuer() string { return a.issuer }

// GroupsPrefix returns the prefix of groups that are a claim, "" for none.
func (a *Authenticator) GroupsPrefix() string { return a.groups.prefix }

// Warnings returns the warnings about the configuration, in a fixed order. The caller must
// not write to the list.
func (a *Authenticator) Warnings() []Warning { return a.warnings }

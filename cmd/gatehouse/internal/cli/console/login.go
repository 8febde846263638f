package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// addLogin adds the page.
func (c *console) addLogin() {
	var parts []part
	if !c.isOffline() {
		parts = append(parts, part{"whoami", "Who you are", "", "whoami", c.showWhoami})
		parts = append(parts, part{"issuers", "Issuers", "", "issuers", c.showIssuers})
	}
	if c.config != "" {
		parts = append(parts, part{"sources", "Sources of identities in the configuration", "", "sources", c.showSources})
	}
	if !c.isOffline() || c.config != "" {
		parts = append(parts,
			part{"tokens", "Access tokens", "", "tokens", c.showTokens},
			part{"revocations", "Revocations", "", "revocations", c.showRevocations})
	}
	if !c.isOffline() {
		parts = append(parts, part{"trust", "Which webhook trusts which CA", "", "trust", c.showTrust})
	}
	c.addParts("GET /login", "/login", "Login", parts)
}

// whoami is the output of the command, as far as it is shown.
type whoami struct {
	Outcome        string `json:"outcome"`
	Context        string `json:"context"`
	Server         string `json:"server"`
	GatehouseError string `json:"gatehouseError"`
	Gatehouse      *struct {
		Outcome, Reason, Message, Backend, Source, TokenID string

		User                *authenticationv1.UserInfo
		IssuedAt, ExpiresAt *time.Time
		ExpiresIn           string `json:"-"`
	} `json:"gatehouse"`
}

// showWhoami sends the token of the kubeconfig to Gatehouse, as the command does.
func (c *console) showWhoami(r *http.Request) (partData, error) {
	if c.InCluster {
		return partData{}, errors.New("whoami needs a kubeconfig, and --in-cluster has none")
	}
	words := append([]string{"whoami"}, c.clusterWords()...)
	data := &whoami{}
	if err := c.execute(r.Context(), nil, append(words, "-o", "json")...).decode(data); err != nil {
		return partData{Command: words}, err
	}
	if g := data.Gatehouse; g != nil && g.ExpiresAt != nil {
		g.ExpiresIn = c.in(*g.ExpiresAt)
	}
	return partData{Data: data, Command: words}, nil
}

// issuerRow is an issuer by the metrics of the replicas.
type issuerRow struct {
	URL string
	// Least is the number of keys in the replica that has the fewest.
	Least, Replicas int
	// Fetched is when the replica with the oldest keys fetched them, and Age how long ago. They are zero for keys of a file.
	Fetched time.Time
	Age     string
}

func (c *console) showIssuers(r *http.Request) (partData, error) {
	s, notes, err := c.look(r.Context())
	if err != nil {
		return partData{}, err
	}
	rows := map[string]*issuerRow{}
	for _, m := range s.metrics {
		for _, one := range m.Series("gatehouse_issuer_keys") {
			url := one.Labels["issuer"]
			row := rows[url]
			if row == nil {
				row = &issuerRow{URL: url, Least: int(one.Value)}
				rows[url] = row
			}
			row.Least, row.Replicas = min(row.Least, int(one.Value)), row.Replicas+1
			if at, ok := m.Value("gatehouse_issuer_keys_fetched_timestamp_seconds", "issuer", url); ok {
				if t := secondsTime(at); row.Fetched.IsZero() || t.Before(row.Fetched) {
					row.Fetched, row.Age = t, c.ago(t)
				}
			}
		}
	}
	list, pages := paginate(r, "issuers", slices.SortedFunc(maps.Values(rows), func(a, b *issuerRow) int { return strings.Compare(a.URL, b.URL) }))
	return partData{Data: &paged[*issuerRow]{list, pages}, Notes: notes}, nil
}

// paged is a page of a list.
type paged[T any] struct {
	Rows  []T
	Pages pager
}

// listedToken is an access token as token list prints it. It has no hash: the command prints none.
type listedToken struct {
	ID         string                    `json:"id"`
	User       authenticationv1.UserInfo `json:"user"`
	ExpiresAt  metav1.Time               `json:"expiresAt"`
	LastUsedAt *time.Time                `json:"lastUsedAt"`
	State      string                    `json:"state"`
	RevokedBy  *struct{ Name string }    `json:"revokedBy"`
	File       string                    `json:"file"`

	Expiry expiry `json:"-"`
}

// Defined says where the token is.
func (t *listedToken) Defined() string { return cmp.Or(t.File, "cluster") }

// tokenWords returns the command that lists tokens.
func (c *console) tokenWords() []string {
	if c.isOffline() {
		return []string{"token", "list", "--config", c.config}
	}
	return append([]string{"token", "list"}, c.clusterWords()...)
}

// tokens returns the access tokens that expire first, first, and why there may be more.
func (c *console) tokens(ctx context.Context) (all []listedToken, notes []string) {
	out := c.execute(ctx, nil, append(c.tokenWords(), "-o", "json")...)
	if err := out.err(); err != nil {
		return nil, []string{explain(err)}
	}
	all, err := decodeLines[listedToken](out.out)
	if err != nil {
		return nil, []string{err.Error()}
	}
	for i := range all {
		all[i].Expiry = newExpiry(&all[i].ExpiresAt, c.now())
	}
	slices.SortStableFunc(all, func(a, b listedToken) int { return a.ExpiresAt.Compare(b.ExpiresAt.Time) })
	return all, out.problems()
}

func (c *console) showTokens(r *http.Request) (partData, error) {
	all, notes := c.tokens(r.Context())
	rows, pages := paginate(r, "tokens", all)
	return partData{Data: &paged[listedToken]{rows, pages}, Notes: notes, Command: c.tokenWords()}, nil
}

// revocationRow is a TokenRevocation.
type revocationRow struct {
	Name, User, Reason, Defined string
	IssuedBefore                time.Time
}

func (c *console) showRevocations(r *http.Request) (partData, error) {
	var all []revocationRow
	if c.isOffline() {
		documents, _ := config.Inspect(c.config) // the part about the configuration shows what is wrong
		for i := range documents.Authn.Revocations {
			x := &documents.Authn.Revocations[i]
			all = append(all, revocationRow{x.Name, x.Spec.User, x.Spec.Reason, x.Source, x.Spec.IssuedBefore.Time})
		}
	} else {
		client, err := c.client()
		if err != nil {
			return partData{}, err
		}
		objects, err := list[v1alpha1.TokenRevocation](r.Context(), client, v1alpha1.GroupVersion.WithResource("tokenrevocations"), "", "")
		if err != nil {
			return partData{}, err
		}
		for i := range objects {
			x := &objects[i]
			all = append(all, revocationRow{x.Name, x.Spec.User, x.Spec.Reason, "cluster", x.Spec.IssuedBefore.Time})
		}
	}
	slices.SortFunc(all, func(a, b revocationRow) int {
		return cmp.Or(b.IssuedBefore.Compare(a.IssuedBefore), strings.Compare(a.Name, b.Name))
	})
	rows, pages := paginate(r, "revocations", all)
	return partData{Data: &paged[revocationRow]{rows, pages}}, nil
}

// sourcesData is what a configuration says about identities.
type sourcesData struct {
	Issuers     []issuerSource
	Directories []directorySource
	// Prefixes and Groups are what the identity guard requires and allows.
	Prefixes []v1alpha1.RequiredPrefix
	Groups   []v1alpha1.AllowedGroup
	// LoginTTL and SessionTTL are those of login tokens, "" without logins.
	LoginTTL, SessionTTL string
}

// issuerSource is an issuer of a configuration.
type issuerSource struct {
	URL, Defined        string
	Audiences, Mappings []string
	Rules               int
}

// directorySource is an LDAP directory of a configuration.
type directorySource struct {
	Name, Defined, UsernamePrefix, GroupsPrefix string
	Servers                                     []string
}

// showSources shows where identities come from, by the configuration.
func (c *console) showSources(*http.Request) (partData, error) {
	documents, found := config.Inspect(c.config)
	spec := &documents.Authn
	data := &sourcesData{}
	for i := range spec.Issuers {
		data.Issuers = append(data.Issuers, newIssuerSource(&spec.Issuers[i]))
	}
	for i := range spec.Directories {
		d := spec.Directories[i].Config
		data.Directories = append(data.Directories, directorySource{d.Name, spec.Directories[i].Source, d.UsernamePrefix, d.GroupsPrefix, d.Servers})
	}
	if own := spec.Configuration; own != nil {
		data.Prefixes, data.Groups = own.Guard.Prefixes, own.Guard.AllowedGroups
		if own.Login != nil {
			data.LoginTTL, data.SessionTTL = ttlText(own.Login.TokenTTL), ttlText(own.Login.SessionTTL)
		}
	}
	var notes []string
	if found.Err() != nil {
		notes = append(notes, "the configuration has errors, and more may be in it than is shown here")
	}
	return partData{Data: data, Notes: notes}, nil
}

func ttlText(d *metav1.Duration) string {
	if d == nil {
		return "the default"
	}
	return cli.FormatDuration(d.Duration)
}

func newIssuerSource(issuer *authn.Issuer) issuerSource {
	of := issuer.Config
	out := issuerSource{URL: of.Issuer.URL, Defined: issuer.Source, Audiences: of.Issuer.Audiences, Rules: len(of.ClaimValidationRules) + len(of.UserValidationRules)}
	add := func(field, claim, expression, prefix string) {
		switch {
		case expression != "":
			out.Mappings = append(out.Mappings, field+" = "+expression)
		case claim != "" && prefix != "":
			out.Mappings = append(out.Mappings, fmt.Sprintf("%s = %q and the claim %s", field, prefix, claim))
		case claim != "":
			out.Mappings = append(out.Mappings, field+" = the claim "+claim)
		}
	}
	mappings := &of.ClaimMappings
	add("username", mappings.Username.Claim, mappings.Username.Expression, ptr.Deref(mappings.Username.Prefix, ""))
	add("groups", mappings.Groups.Claim, mappings.Groups.Expression, ptr.Deref(mappings.Groups.Prefix, ""))
	add("uid", mappings.UID.Claim, mappings.UID.Expression, "")
	for i := range mappings.Extra {
		add("extra "+mappings.Extra[i].Key, "", mappings.Extra[i].ValueExpression, "")
	}
	return out
}

// showTrust shows which webhook configuration trusts which CA.
func (c *console) showTrust(r *http.Request) (partData, error) {
	status, notes := c.certsStatus(r)
	return partData{Data: status, Notes: notes, Command: c.certsWords()}, nil
}

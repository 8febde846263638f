package authn

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/finding"
)

// Compile checks a Spec and makes a Set of it. The error, if there is one, is a
// finding.List with every problem in a fixed order, and there is no Set then.
func Compile(spec Spec) (*Set, error) {
	c := compiler{
		tokens: accessTokens{byID: make(map[string]*accessToken, len(spec.Tokens)), now: spec.Now},
		ids:    make(map[string]*Token, len(spec.Tokens)),
		hashes: make(map[[32]byte]*Token, len(spec.Tokens)),
	}
	if len(spec.Tokens) > 0 {
		if spec.Now == nil {
			return nil, finding.List{{
				Severity: finding.Error,
				Message:  "access tokens need a clock to expire by, and Spec.Now is nil",
			}}
		}
		c.now = spec.Now()
	}
	for i := range spec.Tokens {
		c.add(&spec.Tokens[i])
	}
	c.findings.Sort()
	if err := c.findings.Err(); err != nil {
		return nil, err
	}
	return &Set{
		backends: []backend{{owns: isAccessToken, authenticate: c.tokens.authenticate}},
		warnings: c.findings,
	}, nil
}

// compiler is the state of one Compile.
type compiler struct {
	tokens   accessTokens
	now      time.Time
	ids      map[string]*Token
	hashes   map[[32]byte]*Token
	findings finding.List
}

// add checks one token and makes it known.
func (c *compiler) add(t *Token) {
	report := func(severity finding.Severity, field, message, hint string) {
		c.findings = append(c.findings, finding.Finding{
			Severity: severity, Source: t.Source, Object: object(t),
			Field: field, Message: message, Hint: hint,
		})
	}

	if !isLabel(t.Name) {
		report(finding.Error, "metadata.name", quote(t.Name)+` is not a DNS-1123 label, and it is the token's id: `+
			`1 to 63 lower-case letters, digits and "-", with a letter or a digit at both ends`, "")
	} else if first, taken := c.ids[t.Name]; taken {
		report(finding.Error, "metadata.name", fmt.Sprintf("%s is already the id of the token in %s", quote(t.Name), place(first)),
			"issue one of the two again under another id")
	} else {
		c.ids[t.Name] = t
	}

	digest, message, hint := parseDigest(t.Spec.SHA256)
	if message != "" {
		report(finding.Error, "spec.sha256", message, hint)
	} else if first, taken := c.hashes[digest]; taken {
		report(finding.Error, "spec.sha256", fmt.Sprintf("%s is already the hash of %s in %s", quote(t.Spec.SHA256), object(first), place(first)),
			"the id is part of a token's text, so no text has both ids: issue a token for each")
	} else {
		c.hashes[digest] = t
	}

	for _, v := range violations(&t.Spec.User) {
		report(finding.Error, "spec.user."+v.field, v.message, "")
	}

	switch {
	case t.Spec.ExpiresAt.IsZero():
		report(finding.Error, "spec.expiresAt", "is missing, and every access token expires", `for example "2027-01-31T00:00:00Z"`)
	case !c.now.Before(t.Spec.ExpiresAt.Time):
		report(finding.Warning, "spec.expiresAt", fmt.Sprintf("%q has passed: the token is refused", t.Spec.ExpiresAt.UTC().Format(time.RFC3339)),
			"delete the document, or issue a new token")
	}

	audiences := make([]string, 0, len(t.Spec.Audiences))
	for i, audience := range t.Spec.Audiences {
		if audience == "" {
			report(finding.Error, fmt.Sprintf("spec.audiences[%d]", i), `"" must not be empty`,
				"without any audiences the token is good for the API server's own")
		}
		audiences = append(audiences, strings.Clone(audience))
	}

	c.tokens.byID[t.Name] = &accessToken{
		id:        t.Name,
		digest:    digest,
		expiresAt: t.Spec.ExpiresAt.Time,
		identity:  *t.Spec.User.DeepCopy(),
		audiences: audiences,
	}
}

// parseDigest reads spec.sha256. If it is not what it should be, the message
// says why, and quotes no more than hexadecimal digits: what stands there by
// mistake may be the secret.
func parseDigest(text string) (digest [32]byte, message, hint string) {
	const want = "64 lower-case hexadecimal digits"
	isHex := strings.Trim(text, "0123456789abcdefABCDEF") == ""
	switch {
	case text == "":
		return digest, "is missing: it is the SHA-256 of the token's text, " + want, "gatehouse token issue writes it"
	case isAccessToken(text):
		return digest, "holds the text of a token, and must hold its hash: " + want,
			"whoever can read this document has the token: remove it and issue a new one"
	case !isHex:
		return digest, fmt.Sprintf("must be %s, and is %d bytes of other text", want, len(text)), ""
	case len(text) != 2*len(digest) || strings.ToLower(text) != text:
		return digest, fmt.Sprintf("%s is not %s", quote(text), want), ""
	}
	if _, err := hex.Decode(digest[:], []byte(text)); err != nil {
		return digest, "must be " + want, ""
	}
	return digest, "", ""
}

// object names a token as findings do.
func object(t *Token) string { return "AccessToken/" + t.Name }

// place is where a token was read, for the sentence of another token's finding.
func place(t *Token) string {
	if t.Source == "" {
		return "another document"
	}
	return t.Source
}

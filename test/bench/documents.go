package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// The configurations that Gatehouse is measured with. All hold the same
// token, and differ in their profiles and policies.
const (
	noPolicies  = "no policies"
	onePolicy   = "one policy"
	tenPolicies = "ten policies"
	tenRules    = "ten rules"
	podSecurity = "pod security"
	// hundredPolicies are ten times those of tenPolicies, and manyPolicies has
	// those of tenPolicies, and others that do not match a pod of the benchmark.
	hundredPolicies = "100 policies"
	manyPolicies    = "ten of 1000 policies"
	// workloadTemplates has a policy that only a pod with the sidecar keeps.
	workloadTemplates = "workload templates"
	// exceptions has the policies of tenPolicies, and 100 exceptions, one of
	// which is about exceptedPod.
	exceptions  = "exceptions"
	twoProfiles = "two profiles"
	// manyProfiles has the profiles of twoProfiles, and others, none of which
	// select a pod of the benchmark.
	manyProfiles = "two of 200 profiles"
	parameters   = "parameters"
	// issuer has an issuer of JWTs, whose mappings are by claim, and issuerCEL one
	// whose mappings and rules are expressions. manyTokens has 100,000 other access
	// tokens.
	issuer     = "issuer"
	issuerCEL  = "issuer with expressions"
	manyTokens = "100,000 tokens" //nolint:gosec // no secret
)

// otherTokens is how many manyTokens has.
const otherTokens = 100_000

// writeDocuments writes one of the configurations into the directory, as the
// documents of a user. The token expires a day after now.
func writeDocuments(directory, configuration string, now time.Time) error {
	documents := map[string]string{"namespace.yaml": namespaceDocument}
	profiles := []document{telemetryProfile()}
	switch configuration {
	case noPolicies, fileCertificate, ownCertificate:
	case issuer, issuerCEL:
		documents = issuerDocuments(configuration == issuerCEL)
	case manyTokens:
		text, err := manyAccessTokens(otherTokens, now)
		if err != nil {
			return err
		}
		documents["tokens.json"] = text
	case onePolicy:
		documents["policy.yaml"] = middlePolicy("containers", "")
	case tenPolicies:
		documents["policies.yaml"] = joined(ruledPolicies(10))
	case tenRules:
		documents["policy.yaml"] = tenRulesDocument()
	case podSecurity:
		documents["policy.yaml"] = podSecurityDocument
	case hundredPolicies:
		documents["policies.yaml"] = joined(ruledPolicies(100))
	case manyPolicies:
		documents["policies.yaml"] = joined(mostlyOtherPolicies(1000))
	case workloadTemplates:
		documents["policy.yaml"] = templateDocument
	case exceptions:
		documents["policies.yaml"] = joined(ruledPolicies(10))
		documents["exceptions.yaml"] = joined(exceptionDocuments(100, now))
	case twoProfiles:
		profiles = append(profiles, meshProfile())
	case manyProfiles:
		profiles = append(profiles, meshProfile())
		for i := range 198 {
			profiles = append(profiles, otherProfile(i))
		}
	case parameters:
		profiles = []document{parameterProfile()}
	default:
		return fmt.Errorf("unknown configuration %q", configuration)
	}
	var texts []string
	for _, profile := range profiles {
		text, err := json.MarshalIndent(profile, "", "  ")
		if err != nil {
			return err
		}
		texts = append(texts, string(text)+"\n")
	}
	documents["profiles.yaml"] = joined(texts)
	token, err := json.MarshalIndent(accessToken(now), "", "  ")
	if err != nil {
		return err
	}
	documents["token.json"] = string(token)
	for name, text := range documents {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// joined makes one file of documents, each of which ends with a line.
func joined(documents []string) string { return strings.Join(documents, "---\n") }

// accessToken is the document of benchToken.
func accessToken(now time.Time) v1alpha1.AccessToken {
	_, hash := benchToken()
	return v1alpha1.AccessToken{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AccessToken"},
		ObjectMeta: metav1.ObjectMeta{Name: tokenID},
		Spec: v1alpha1.AccessTokenSpec{
			SHA256:    hash,
			User:      authenticationv1.UserInfo{Username: tokenUser, Groups: []string{tokenGroup}},
			ExpiresAt: metav1.NewTime(now.Add(24 * time.Hour).UTC().Truncate(time.Second)),
		},
	}
}

// manyAccessTokens are the documents of tokens that nobody has, one file of them.
func manyAccessTokens(n int, now time.Time) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	token := accessToken(now)
	for i := range n {
		token.Name = fmt.Sprintf("robot-%06d", i)
		token.Spec.SHA256 = fmt.Sprintf("%064x", i+1)
		token.Spec.User = authenticationv1.UserInfo{
			Username: fmt.Sprintf("robot-%d@example.com", i), UID: fmt.Sprintf("%08d", i),
			Groups: []string{"robots", fmt.Sprintf("team-%d", i%100)},
		}
		if err := encoder.Encode(token); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// namespaceDocument is the context that profiles and policies look up.
const namespaceDocument = `apiVersion: v1
kind: Namespace
metadata:
  name: ` + benchNamespace + `
  labels:
    kubernetes.io/metadata.name: ` + benchNamespace + `
    team: shop
`

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
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// The configurations that Gatehouse is measured with. All have the same token,
// and differ in their profiles, policies and issuers.
const (
	noPolicies        = "no policies"
	fileCertificate   = "certificate in files" // no policies either, as with ownCertificate
	ownCertificate    = "self-signed certificate"
	onePolicy         = "one policy"
	oneRule           = "one rule" // the first policy of tenPolicies
	tenPolicies       = "ten policies"
	tenRules          = "ten rules"
	podSecurity       = "pod security"
	hundredPolicies   = "100 policies" // ten times those of tenPolicies
	tenOf100Policies  = "ten of 100 policies"
	manyPolicies      = "ten of 1000 policies"    // those of tenPolicies, and others that match no pod of the benchmark
	workloadTemplates = "workload templates"      // a policy that requires the sidecar
	exceptions        = "exceptions"              // tenPolicies with 100 exceptions, one of which matches
	twoProfiles       = "two profiles"            //
	manyProfiles      = "two of 200 profiles"     // twoProfiles, and others that match no pod of the benchmark
	parameters        = "parameters"              //
	issuer            = "issuer"                  // of JWTs, with mappings by claim
	issuerCEL         = "issuer with expressions" //
	manyTokens        = "100,000 tokens"          //nolint:gosec // no secret
	noProfiles        = "no profiles"             // and no policies
	applyLabel        = "an ApplyConfiguration"   // of a mutating policy; no profiles, as those that follow
	patchLabel        = "a JSONPatch"
	oneOfTenMutates   = "one of ten mutating policies"
	othersMutate      = "mutating policies of others"
	hundredMutate     = "100 mutating policies"
)

// recorded ends the names of configurations whose reviews are recorded, all of them. The rest of the name is
// the configuration.
const recorded = ", recorded"

const (
	// tokenID, tokenUser and tokenGroup are the name and the identity of the
	// benchmark's access token.
	tokenID    = "bench"
	tokenUser  = "developer@example.com"
	tokenGroup = "developers"

	// sidecarName and meshName are the names of the containers and volumes that
	// the two profiles add.
	sidecarName = "telemetry-agent"
	meshName    = "mesh-agent"

	// optOutLabel excludes a pod from the telemetry profile.
	optOutLabel = "telemetry.example.com/disabled"

	// parameterPort and parameterMemory are the values that a pod sets with
	// annotations.
	parameterPort   = "15021"
	parameterMemory = "512Mi"
)

// writeDocuments writes the documents of a configuration into the directory. The
// token expires a day after now.
func writeDocuments(directory, configuration string, now time.Time) error {
	const team = "{namespaceSelector: {matchLabels: {team: shop}}}"
	telemetry := sidecarProfile("telemetry", "{namespaceSelector: {matchLabels: {team: shop}}, "+
		"objectSelector: {matchExpressions: [{key: "+optOutLabel+", operator: DoesNotExist}]}}", agentSpec(sidecarName))
	profiles := []string{telemetry}
	files := map[string]string{"namespace.yaml": namespaceDocument}
	configuration = strings.TrimSuffix(configuration, recorded)
	policies := policyDocuments(configuration)
	switch configuration {
	case issuer, issuerCEL:
		files["issuer.yaml"], files["issuer.jwks"] = issuerDocuments(configuration == issuerCEL), issuerKeys
	case manyTokens:
		files["tokens.json"] = otherTokens(100_000, now)
	case exceptions:
		policies = append(policies, exceptionDocuments(100, now)...)
	case twoProfiles, manyProfiles:
		profiles = append(profiles, sidecarProfile("mesh", team, agentSpec(meshName)))
	case parameters:
		profiles[0] = strings.NewReplacer(
			"\n  template:", parameterDefinitions+"\n  template:",
			"image: registry.example.com/shop/telemetry-agent:1.42.7", "image: ${params.image}",
			`"--listen=:15020", "--forward=http://collector.telemetry.svc:4318"`, `"--listen=:${params.port}", "--forward=${params.collector}", "--level=${params.level}"`,
			"limits: {memory: 256Mi}", `limits: {memory: "${params.memory}"}`,
		).Replace(telemetry)
	}
	if configuration == manyProfiles {
		for i := range 198 {
			name := fmt.Sprintf("other-%03d", i)
			match := "{namespaceSelector: {matchLabels: {team: " + name + "}}}"
			if i%2 == 1 {
				match = "{objectSelector: {matchLabels: {" + nameLabel + ": " + name + "}}}"
			}
			profiles = append(profiles, sidecarProfile(name, match, agentSpec(name)))
		}
	}
	mutating := mutatingDocuments(configuration)
	policies = append(policies, mutating...)
	if len(mutating) > 0 || configuration == noProfiles {
		profiles = nil
	}
	if len(policies) > 0 {
		files["policies.yaml"] = strings.Join(policies, "---\n")
	}
	files["profiles.yaml"] = strings.Join(profiles, "---\n")
	_, hash := benchToken()
	files["token.json"] = string(must(json.Marshal(accessToken(tokenID, hash, authenticationv1.UserInfo{Username: tokenUser, Groups: []string{tokenGroup}}, now))))
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// policyDocuments returns the policies of a configuration, with their bindings.
func policyDocuments(configuration string) []string {
	switch configuration {
	case onePolicy:
		return []string{upstreamPolicy("containers", podRules, middleRules)}
	case oneRule:
		return ruledPolicies(1)
	case tenPolicies, exceptions:
		return ruledPolicies(10)
	case tenRules:
		return []string{tenRulesDocument()}
	case podSecurity:
		return []string{podSecurityDocument}
	case hundredPolicies:
		return ruledPolicies(100)
	case tenOf100Policies:
		return mostlyOtherPolicies(100)
	case manyPolicies:
		return mostlyOtherPolicies(1000)
	case workloadTemplates:
		return []string{templateDocument}
	default:
		return nil
	}
}

// benchToken returns the benchmark's access token and its hash. Only servers
// that live for one run accept it.
func benchToken() (token, hash string) { return authn.NewToken(tokenID, [25]byte{1}) }

// accessToken returns the document of an access token.
func accessToken(name, hash string, user authenticationv1.UserInfo, now time.Time) v1alpha1.AccessToken {
	return v1alpha1.AccessToken{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AccessToken"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.AccessTokenSpec{
			SHA256:    hash,
			User:      user,
			ExpiresAt: metav1.NewTime(now.Add(24 * time.Hour).UTC().Truncate(time.Second)),
		},
	}
}

// otherTokens returns the documents of n access tokens that are not sent.
func otherTokens(n int, now time.Time) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	for i := range n {
		must0(encoder.Encode(accessToken(fmt.Sprintf("robot-%06d", i), fmt.Sprintf("%064x", i+1), authenticationv1.UserInfo{
			Username: fmt.Sprintf("robot-%d@example.com", i), UID: fmt.Sprintf("%08d", i),
			Groups: []string{"robots", fmt.Sprintf("team-%d", i%100)},
		}, now)))
	}
	return b.String()
}

// namespaceDocument is what profiles and policies look up.
const namespaceDocument = `apiVersion: v1
kind: Namespace
metadata:
  name: ` + benchNamespace + `
  labels:
    kubernetes.io/metadata.name: ` + benchNamespace + `
    team: shop
`

// sidecarProfile returns a profile that adds the partial pod spec to every pod
// that it matches.
func sidecarProfile(name, match, spec string) string {
	return fmt.Sprintf(`apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: %s}
spec:
  match: %s
  injection: OptOut
  template:
    spec:
%s`, name, match, spec)
}

// agentSpec returns a partial pod spec with a native sidecar and a volume.
func agentSpec(name string) string {
	return strings.ReplaceAll(`      initContainers:
      - name: NAME
        image: registry.example.com/shop/NAME:1.42.7
        imagePullPolicy: IfNotPresent
        args: ["--listen=:15020", "--forward=http://collector.telemetry.svc:4318"]
        restartPolicy: Always
        resources:
          limits: {memory: 256Mi}
          requests: {cpu: 100m, memory: 256Mi}
        securityContext:
          allowPrivilegeEscalation: false
          capabilities: {drop: [ALL]}
        volumeMounts: [{name: NAME, mountPath: /var/spool/NAME}]
      volumes:
      - {name: NAME, emptyDir: {}}
`, "NAME", name)
}

// parameterDefinitions are the parameters of a profile.
const parameterDefinitions = `
  parameters:
  - {name: image, type: string, default: "registry.example.com/shop/telemetry-agent:1.42.7", pattern: 'registry\.example\.com/.+'}
  - {name: port, type: port, default: 15020, minimum: 1024}
  - {name: collector, type: string, default: "http://collector.telemetry.svc:4318"}
  - {name: level, type: enum, default: info, enum: [debug, info, error]}
  - {name: memory, type: quantity, default: 256Mi, maximum: 1Gi}`

// issuerDocuments configure the issuer of the tokens, with mappings by claim or
// with expressions.
func issuerDocuments(expressions bool) string {
	mapping := `    username: {claim: preferred_username, prefix: ""}
    groups: {claim: groups, prefix: "sso:"}
    uid: {claim: sub}
`
	if expressions {
		mapping = `    username: {expression: claims.preferred_username}
    groups: {expression: "claims.?groups.orValue([])"}
    uid: {expression: claims.sub}
    extra:
    - {key: example.com/name, valueExpression: claims.name}
  claimValidationRules:
  - {expression: "claims.email_verified == true", message: the address has to be verified}
  - {expression: "has(claims.azp) && claims.azp == 'kubernetes'", message: the token is for another client}
  userValidationRules:
  - {expression: "!user.username.startsWith('system:')", message: reserved}
  - {expression: "user.groups.exists(g, g == 'kubernetes-users')", message: not a member}
`
	}
	return `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: https://issuer.example, audiences: [kubernetes]}
  claimMappings:
` + mapping + `---
apiVersion: gatehouse.dev/v1alpha1
kind: AuthenticationConfiguration
jwt: {issuers: [{url: https://issuer.example, keysFile: issuer.jwks}]}
`
}

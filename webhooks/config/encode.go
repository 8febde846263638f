package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// Own returns what of the configuration decides about objects and is not a custom resource of the cluster: policies, bindings,
// exceptions, profiles and the PolicyConfiguration. Nothing about tokens, issuers and directories is in it, and no param.
func (c *Config) Own() *Config {
	out := &Config{Digest: c.Digest}
	out.Policy.Configuration = c.Policy.Configuration
	for o := range c.Objects(decidingKinds()...) {
		if o.Source != ClusterSource {
			out.add(o.Source, o.Object)
		}
	}
	return out
}

// Beside returns the configuration with what of another one decides about objects and has no object of its kind and name here.
func (c *Config) Beside(others *Config) *Config {
	out := c.extensible()
	for _, kind := range decidingKinds() {
		known := c.Sources(kind)
		for o := range others.Objects(kind) {
			if _, is := known[ObjectName(o)]; !is {
				out.add(o.Source, o.Object)
			}
		}
	}
	if out.Policy.Configuration == nil {
		out.Policy.Configuration = others.Policy.Configuration
	}
	return out
}

// decidingKinds returns the kinds of objects that decide about objects.
func decidingKinds() []string {
	return []string{
		sidecarProfile, mutatingPolicy, mutatingBinding, upstreamPolicy, upstreamBinding, admissionPolicy, admissionBinding, policyException,
		policyBaseline,
	}
}

// maxEncodedTokens bounds the access tokens that Encode writes: nobody can use them.
const maxEncodedTokens = 1000

// Encode returns the configuration as YAML documents without secrets, which load again and decide on
// admission requests as this configuration does. Redact returns the JSON of an object whose secret values are
// replaced; it gets the Secrets of Context.
//
// Nothing of files that documents name is in it. Therefore it has no LDAP directories, login keys and
// key files of issuers, and hashes of access tokens are replaced by numbers.
func (c *Config) Encode(rewrite func(object []byte) []byte) ([]byte, error) {
	e := encoder{out: new(bytes.Buffer)}
	e.comment("The configuration %s without secrets: without the files that documents name, LDAP directories and login keys.", c.Digest)
	for o := range c.Objects(append(decidingKinds(), tokenRevocation, grant)...) {
		e.add(o.Kind, o.Object)
	}
	if c.Policy.Configuration != nil {
		e.add(policyConfiguration, &c.Policy.Configuration.PolicyConfiguration)
	}
	if c.Recording != nil {
		e.add(recordingConfig, c.Recording)
	}
	e.authentication(c)
	for i := range c.Authn.Tokens {
		if i == maxEncodedTokens {
			e.comment("%d more AccessTokens are not listed.", len(c.Authn.Tokens)-i)
			break
		}
		token := c.Authn.Tokens[i].AccessToken
		token.Spec.SHA256 = fmt.Sprintf("%064x", i) // two tokens cannot have the same
		e.add(accessToken, &token)
	}
	for _, object := range c.Context {
		text, err := json.Marshal(object.Object)
		if err == nil && object.GetKind() == "Secret" {
			text = rewrite(text)
		}
		e.document(text, err, schema.GroupVersionKind{})
	}
	return e.out.Bytes(), e.err
}

// encoder writes documents.
type encoder struct {
	out *bytes.Buffer
	err error
}

func (e *encoder) comment(format string, args ...any) {
	fmt.Fprintf(e.out, "---\n# "+format+"\n", args...)
}

// add writes an object of a typed kind.
func (e *encoder) add(kind string, object any) {
	text, err := json.Marshal(object)
	e.document(text, err, typedKinds[kind].version.WithKind(kind))
}

// document writes an object. The kind is that of objects that do not have one.
func (e *encoder) document(text []byte, err error, kind schema.GroupVersionKind) {
	var fields map[string]any
	if err == nil {
		err = unmarshalNumbers(text, &fields)
	}
	if err == nil {
		if !kind.Empty() {
			fields["apiVersion"], fields["kind"] = kind.GroupVersion().String(), kind.Kind
		}
		delete(fields, "status")
		if metadata, ok := fields["metadata"].(map[string]any); ok {
			for _, name := range []string{"managedFields", "resourceVersion", "uid", "generation", "ownerReferences"} {
				delete(metadata, name)
			}
		}
		text, err = yaml.Marshal(fields)
	}
	if err != nil {
		e.err = fmt.Errorf("encode the configuration: %w", err)
		return
	}
	e.out.WriteString("---\n")
	e.out.Write(text)
}

// unmarshalNumbers decodes JSON as the API machinery does: integers stay integers.
func unmarshalNumbers(text []byte, into *map[string]any) error {
	_, err := unmarshal(json.RawMessage(text), into)
	return err
}

// authentication writes the two kinds of AuthenticationConfiguration.
func (e *encoder) authentication(c *Config) {
	if len(c.Authn.Issuers) > 0 {
		all := apiserver.AuthenticationConfiguration{}
		for i := range c.Authn.Issuers {
			all.JWT = append(all.JWT, *c.Authn.Issuers[i].Config)
		}
		text, err := runtime.Encode(upstreamEncoder(), &all)
		e.document(text, err, schema.GroupVersionKind{})
	}
	if c.Authn.Configuration == nil {
		return
	}
	own := c.Authn.Configuration.DeepCopy()
	isDirectory := func(name string) bool {
		return slices.ContainsFunc(own.Directories, func(d v1alpha1.Directory) bool { return d.Name == name })
	}
	own.Guard.Prefixes = slices.DeleteFunc(own.Guard.Prefixes, func(p v1alpha1.RequiredPrefix) bool { return isDirectory(p.Source) })
	for i := range own.Guard.AllowedGroups {
		own.Guard.AllowedGroups[i].Sources = slices.DeleteFunc(own.Guard.AllowedGroups[i].Sources, isDirectory)
	}
	own.Guard.AllowedGroups = slices.DeleteFunc(own.Guard.AllowedGroups, func(g v1alpha1.AllowedGroup) bool { return len(g.Sources) == 0 })
	own.Directories, own.Login, own.JWT.Issuers = nil, nil, nil
	text, err := json.Marshal(own)
	e.document(text, err, v1alpha1.GroupVersion.WithKind(authenticationConfiguration))
}

// upstreamEncoder writes the API server's configuration in its version v1.
func upstreamEncoder() runtime.Encoder {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON) // every factory has it
	return codecs.EncoderForVersion(info.Serializer, apiserverv1.SchemeGroupVersion)
}

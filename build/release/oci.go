package main

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// user is a number, so that kubelets can check runAsNonRoot.
	user = "65532"
	// refName is the annotation by which tools find an artifact in a layout.
	refName = "org.opencontainers.image.ref.name"
)

// writeImage writes the image for each platform with Linux, from scratch: no shell, no package manager, nothing that could be
// run but Gatehouse.
func (r *release) writeImage() error {
	base, err := r.baseLayer()
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	index = mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	for i := range r.platforms {
		p := &r.platforms[i]
		if p.os != "linux" {
			continue
		}
		image, err := r.image(base, p)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	written, err := layout.Write(filepath.Join(r.output, "image"), mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	return written.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: r.number}))
}

// labels describe the image.
func (r *release) labels() map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title": name, prefix + "version": r.version, prefix + "source": homepage, prefix + "licenses": "Apache-2.0",
		prefix + "created": r.time.Format("2006-01-02T15:04:05Z"),
	}
}

// image returns the image for a platform: what all have in common, and a layer with the binary alone.
func (r *release) image(base v1.Layer, p *platform) (v1.Image, error) {
	program, err := r.layer([]file{{name, 0o755, p.binary}})
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.time}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: base, History: v1.History{Created: created, CreatedBy: "packer: CA certificates, time zones, user"}},
		mutate.Addendum{Layer: program, History: v1.History{Created: created, CreatedBy: "packer: " + p.file(r, ".tar.gz")}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.os, p.arch, created
	config.Config = v1.Config{
		User: user + ":" + user, Entrypoint: []string{"/" + name}, Cmd: []string{"--help"}, Labels: r.labels(),
		Env: []string{"ZONEINFO=/usr/share/zoneinfo.zip"},
		// Reviews, and health and metrics.
		ExposedPorts: map[string]struct{}{"9443/tcp": {}, "8080/tcp": {}},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, r.labels()).(v1.Image), nil
}

// baseLayer returns what the program needs of an operating system.
func (r *release) baseLayer() (v1.Layer, error) {
	// Whom to trust where an issuer or a collector has a certificate of a public CA: Mozilla's roots, but for those that it
	// trusts with conditions, which a file of certificates cannot express.
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	// Time zones, which expressions may name.
	zones, err := os.ReadFile(r.zoneinfo)
	if err != nil {
		return nil, err
	}
	return r.layer([]file{
		{"etc/group", 0o644, []byte("nonroot:x:" + user + ":\n")},
		{"etc/passwd", 0o644, []byte("nonroot:x:" + user + ":" + user + ":nonroot:/:/sbin/nologin\n")},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots.Bytes()},
		{"usr/share/zoneinfo.zip", 0o644, zones},
	})
}

func (r *release) layer(files []file) (v1.Layer, error) {
	content, err := r.tar(files)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
}

// Command packer makes a release from the binaries: archives, an image as an OCI layout, a chart, what it renders for kubectl and
// kustomize, a krew manifest, examples, release notes and checksums. It needs no container engine. It runs in the repository's root.
//
// The same files, version and time give the same bytes: nothing is read from the clock, the owner or the mode of a file.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	name     = "gatehouse"
	homepage = "https://github.com/gatehouse-dev/gatehouse"
	// sums is the file with the checksums. A directory that has it is a release.
	sums = "SHA256SUMS"
)

// release is what is being made.
type release struct {
	// version is that of the tag, and number the same without its v, as charts and images have it.
	version, number string
	// time is that of every file.
	time      time.Time
	platforms []platform
	// output is the directory that is written.
	output string
	// helm packages the chart. zoneinfo is the file with the time zones that the Go toolchain comes with.
	helm, zoneinfo string
}

// platform is an operating system and an architecture, with what was built for them.
type platform struct {
	os, arch string
	binary   []byte
	// sbom lists the modules in the binary.
	sbom []byte
}

// file is the name of a file of the release for a platform.
func (p *platform) file(r *release, extension string) string {
	return fmt.Sprintf("%s_%s_%s_%s%s", name, r.version, p.os, p.arch, extension)
}

// program is the name of the binary in an archive.
func (p *platform) program() string {
	if p.os == "windows" {
		return name + ".exe"
	}
	return name
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "packer:", err)
		os.Exit(1)
	}
}

// semver is a version that helm and krew accept and that can be the tag of an image, which has no build metadata.
var semver = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

func run() error {
	r := &release{}
	flag.StringVar(&r.version, "version", "", "version, such as v0.1.0")
	epoch := flag.Int64("source-date-epoch", 0, "time of every file, in seconds since 1970")
	binaries := flag.String("binaries", "", "directory with gatehouse-OS-ARCH and gatehouse-OS-ARCH.cdx.json")
	flag.StringVar(&r.helm, "helm", "", "path of helm")
	flag.StringVar(&r.zoneinfo, "zoneinfo", "", "path of zoneinfo.zip")
	flag.StringVar(&r.output, "output", "", "directory to write; a release that is there is replaced")
	flag.Parse()
	if !semver.MatchString(r.version) {
		return fmt.Errorf("the version %q is not of the form vX.Y.Z or vX.Y.Z-PRERELEASE (hint: make release VERSION=v0.1.0)", r.version)
	}
	if flag.NArg() == 0 {
		return nil // the version alone was to be checked, before anything is built
	}
	r.number, r.time = strings.TrimPrefix(r.version, "v"), time.Unix(*epoch, 0).UTC()
	for _, arg := range flag.Args() {
		p := platform{}
		p.os, p.arch, _ = strings.Cut(arg, "/")
		built := filepath.Join(*binaries, name+"-"+p.os+"-"+p.arch)
		var err error
		if p.binary, err = os.ReadFile(built); err != nil {
			return err
		}
		if p.sbom, err = os.ReadFile(built + ".cdx.json"); err != nil {
			return err
		}
		r.platforms = append(r.platforms, p)
	}
	if err := r.clear(); err != nil {
		return err
	}
	for _, write := range []func() error{r.writeArchives, r.writeExamples, r.writeImage, r.writeChart, r.writeInstalls, r.writeKrew, r.writeNotes, r.writeSums} {
		if err := write(); err != nil {
			return err
		}
	}
	fmt.Println(r.output)
	return nil
}

// clear makes the directory, and removes what an earlier release has left there. It removes nothing else.
func (r *release) clear() error {
	entries, err := os.ReadDir(r.output)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(r.output, sums)); err != nil {
			return fmt.Errorf("%s is neither empty nor a release (hint: remove it)", r.output)
		}
		if err := os.RemoveAll(r.output); err != nil {
			return err
		}
	}
	return os.MkdirAll(r.output, 0o755)
}

// write writes a file of the release.
func (r *release) write(file string, content []byte) error {
	return os.WriteFile(filepath.Join(r.output, file), content, 0o644)
}

// writeArchives writes an archive and an SBOM for each platform.
func (r *release) writeArchives() error {
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	for i := range r.platforms {
		p := &r.platforms[i]
		archive, err := r.archive([]file{{p.program(), 0o755, p.binary}, {"LICENSE", 0o644, license}})
		if err != nil {
			return err
		}
		if err := errors.Join(r.write(p.file(r, ".tar.gz"), archive), r.write(p.file(r, ".cdx.json"), p.sbom)); err != nil {
			return err
		}
	}
	return nil
}

// writeExamples writes an archive of the examples, the library of policies, definitions and alerts. The chart has its own.
func (r *release) writeExamples() error {
	var files []file
	err := filepath.WalkDir("manifests", func(found string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (found == filepath.Join("manifests", "chart") || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || path.Ext(found) == ".go":
			return nil
		}
		content, err := os.ReadFile(found)
		files = append(files, file{filepath.ToSlash(found), 0o644, content})
		return err
	})
	if err != nil {
		return err
	}
	archive, err := r.archive(files)
	if err != nil {
		return err
	}
	return r.write(fmt.Sprintf("%s_%s_manifests.tar.gz", name, r.version), archive)
}

// relativeLink is a link to a file of the repository.
var relativeLink = regexp.MustCompile(`\]\(([A-Za-z][^):]*)\)`)

// writeNotes writes the section of the changelog for the version; a pre-release has that of the version which it precedes.
func (r *release) writeNotes() error {
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	version, _, _ := strings.Cut(r.number, "-")
	sections := regexp.MustCompile(`(?m)^## `).Split(string(changelog), -1)
	at := slices.IndexFunc(sections, func(section string) bool { return strings.HasPrefix(section, version+" (") })
	if at < 0 {
		return fmt.Errorf("CHANGELOG.md has no section \"## %s (DATE)\"", version)
	}
	_, notes, _ := strings.Cut(sections[at], "\n")
	notes = relativeLink.ReplaceAllString(strings.TrimSpace(notes), "]("+homepage+"/blob/"+r.version+"/$1)")
	return r.write("NOTES.md", []byte(notes+"\n"))
}

// writeSums writes the checksums of all files, which anybody may read.
func (r *release) writeSums() error {
	var lines []string
	err := fs.WalkDir(os.DirFS(r.output), ".", func(found string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		written := filepath.Join(r.output, filepath.FromSlash(found))
		content, err := os.ReadFile(written)
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(content), found))
		return errors.Join(err, os.Chmod(written, 0o644))
	})
	if err != nil {
		return err
	}
	return r.write(sums, []byte(strings.Join(lines, "")))
}

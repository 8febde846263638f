package build

// ProjectURL is the home page of the project.
const ProjectURL = "https://github.com/gatehouse-dev/gatehouse"

// DocsURL returns the address of a section of the documentation: the page without ".md", and the anchor of the heading, which
// may be empty.
func DocsURL(page, anchor string) string {
	url := ProjectURL + "/blob/main/docs/" + page + ".md"
	if anchor != "" {
		url += "#" + anchor
	}
	return url
}

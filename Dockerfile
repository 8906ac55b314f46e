# One image for the scheduler and the workers, built from uv.lock alone, so that
# the cluster runs the same versions as the client. `make up` builds it.

# The base image carries the client's own Python, down to the patch version: Dask
# compares it when a client connects. The Makefile asks the client and hands it in.
ARG PYTHON_IMAGE

FROM ${PYTHON_IMAGE} AS builder
ARG UV_VERSION
RUN python -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
        "uv==${UV_VERSION}"
ENV UV_PROJECT_ENVIRONMENT=/opt/lab UV_PYTHON_DOWNLOADS=never \
    UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1
WORKDIR /build
# The dependencies first: this layer is built again only when the lockfile changes.
COPY pyproject.toml uv.lock ./
RUN uv sync --frozen --no-dev --no-install-project --no-cache \
    # Test suites that packages ship: a quarter of the size, and never imported.
    && find /opt/lab -type d -name tests -prune -exec rm -rf {} +
COPY README.md ./
COPY src ./src
RUN uv sync --frozen --no-dev --no-editable --no-cache

FROM ${PYTHON_IMAGE}
COPY --from=builder /opt/lab /opt/lab
ENV PATH=/opt/lab/bin:$PATH PYTHONUNBUFFERED=1
# Nobody needs root to add two arrays. /data is where the named volume goes; a new
# volume takes over the owner of the folder that it covers.
RUN useradd --create-home --uid 1000 lab \
    && mkdir /data /scratch && chown lab:lab /data /scratch
USER lab
WORKDIR /home/lab

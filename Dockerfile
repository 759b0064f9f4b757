# Pegasus in a container: docker build -t pegasus . (docs/user/operations.md says how to run it)
# The image that has Python; another one must have the same Python in both stages.
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
# The pinned packages first: they change seldom, and a change of the source does not install them again.
COPY requirements.lock ./
RUN python3 -m venv /opt/pegasus \
 && /opt/pegasus/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY actors ./actors
COPY pegasus ./pegasus
# What only builds the package stays here: pip and the build tools are not needed to run.
RUN /opt/pegasus/bin/pip install --no-cache-dir --no-compile --no-deps --no-build-isolation . \
 && /opt/pegasus/bin/pip uninstall --yes hatchling editables \
 && /opt/pegasus/bin/pip uninstall --yes pip \
 && /opt/pegasus/bin/python -m compileall -q -j 0 -x 'olefile2[.]py' /opt/pegasus/lib
# (olefile2.py is for Python 2)

FROM ${PYTHON_IMAGE}
# Certificates for calls to models, and a user of its own with the home on a volume.
RUN useradd --uid 10001 --create-home --home-dir /home/pegasus --shell /usr/sbin/nologin pegasus \
 && install -d -o pegasus -g pegasus -m 0700 /data
COPY --from=build /opt/pegasus /opt/pegasus
ENV PATH=/opt/pegasus/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PEGASUS_HOME=/data \
    PEGASUS_IMAGE=1 \
    PEGASUS__HTTP__HOST=0.0.0.0 \
    PEGASUS__HTTP__ALLOW_REMOTE=true
USER pegasus
WORKDIR /data
VOLUME /data
# The page, the API and the gateway (/ws); everything wants the token.
EXPOSE 7718
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7718/healthz', timeout=4)"]
ENTRYPOINT ["pegasus"]
CMD ["run", "--no-cli"]

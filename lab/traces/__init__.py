"""Capacity that holds for hours, on public traces: carico's Outlook beside the field's predictors."""
